//! What a failure means and what to do about it.

use std::path::Path;

use super::driver::CudaError;

/// What can be known about the machine without the driver.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Whether `/dev/nvidiactl` is there, and whether this user may open it.
    pub nodes: Nodes,
    /// `CUDA_VISIBLE_DEVICES`, if set.
    pub visible_devices: Option<String>,
    /// Inside a container.
    pub container: bool,
}

/// The device files of the kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nodes {
    /// Not a system that has them.
    #[default]
    Unknown,
    /// None.
    Missing,
    /// There, but not for this user.
    Forbidden,
    /// There.
    Usable,
}

impl Machine {
    /// This machine.
    pub fn look() -> Machine {
        Machine {
            nodes: nodes(Path::new("/dev")),
            visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            container: ["/.dockerenv", "/run/.containerenv"].iter().any(|marker| Path::new(marker).exists()),
        }
    }

    /// What to do when the library of the driver is not found.
    pub fn without_library(&self) -> String {
        if cfg!(target_feature = "crt-static") {
            "This fa-doctor is linked statically and cannot load a library. Use the build for glibc: \
             pip install --force-reinstall fa-doctor"
                .to_owned()
        } else if self.container {
            CONTAINER.to_owned()
        } else if self.nodes == Nodes::Usable {
            "The kernel driver is loaded but its library is not installed or not on the search path. Check with: \
             ldconfig -p | grep libcuda"
                .to_owned()
        } else if cfg!(target_os = "macos") {
            "There are no NVIDIA GPUs on this system. Copy the environment to the machine with the GPU and run: \
             fa-doctor smoke"
                .to_owned()
        } else {
            "Check with: nvidia-smi (on WSL the library is in /usr/lib/wsl/lib). The rest of fa-doctor needs no GPU; \
             to compile for one without having it: fa-doctor probe --arch sm_120"
                .to_owned()
        }
    }

    /// What to do when the driver sees no GPU.
    fn without_device(&self) -> String {
        match &self.visible_devices {
            Some(list) if list.is_empty() || list.starts_with("-1") || list == "NoDevFiles" => {
                format!(
                    "CUDA_VISIBLE_DEVICES={list:?} hides every GPU. Run: env -u CUDA_VISIBLE_DEVICES fa-doctor smoke"
                )
            }
            _ if self.nodes == Nodes::Forbidden => PERMISSION.to_owned(),
            _ if self.nodes == Nodes::Missing && self.container => CONTAINER.to_owned(),
            _ if self.nodes == Nodes::Missing => {
                "There is no /dev/nvidiactl: the kernel module is not loaded. Run: sudo modprobe nvidia && nvidia-smi"
                    .to_owned()
            }
            Some(list) => format!(
                "CUDA_VISIBLE_DEVICES={list:?} may name a GPU or MIG instance that is not there. Compare with: nvidia-smi -L"
            ),
            None => "A GPU in MIG mode without an instance is not visible either. Check with: nvidia-smi -L".to_owned(),
        }
    }
}

const CONTAINER: &str = "This is a container without access to the GPU. Start it with: docker run --gpus all .. \
                         (podman: --device nvidia.com/gpu=all)";
const PERMISSION: &str = "This user may not open /dev/nvidiactl. See which group may: ls -l /dev/nvidia*; then: sudo usermod -aG GROUP $USER";
const UPDATE: &str = "Install a newer driver, or on a data centre GPU the matching cuda-compat package. \
                      See what is loaded: cat /proc/driver/nvidia/version";
const MPS: &str = "The MPS server is at fault, not the GPU. Ask it: echo get_server_list | nvidia-cuda-mps-control; \
                   stop it with: echo quit | nvidia-cuda-mps-control";

/// The advice for an error of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What it means and what to do.
    pub text: String,
    /// Nothing is known to be wrong with GPU or kernel: something kept us from trying.
    pub unchecked: bool,
}

/// What an error of the driver means on this machine.
pub fn advice(error: &CudaError, machine: &Machine) -> Advice {
    let kept = |text: &str| Advice { text: text.to_owned(), unchecked: true };
    let wrong = |text: &str| Advice { text: text.to_owned(), unchecked: false };
    match error.code {
        2 => kept("Other processes use the GPU's memory. See which: nvidia-smi"),
        34 => kept(
            "The library that was found is the stub of the CUDA toolkit, which has no driver behind it. \
             Take its folder (.../lib64/stubs) off the search path: echo $LD_LIBRARY_PATH",
        ),
        46 => kept(
            "Another process has the GPU for itself (exclusive mode). See which: nvidia-smi \
             --query-compute-apps=pid,name --format=csv",
        ),
        100 => kept(&machine.without_device()),
        101 => kept("Choose another with --device N. List them: nvidia-smi -L"),
        209 | 222 => kept(&format!("The driver is older than this GPU or this PTX needs. {UPDATE}")),
        221 => kept(&format!("The driver's PTX compiler (libnvidia-ptxjitcompiler) is not installed. {UPDATE}")),
        223 => kept("Compiling PTX is switched off: env -u CUDA_DISABLE_PTX_JIT fa-doctor smoke"),
        214 => wrong(
            "The GPU's memory has failed (uncorrectable ECC error). It needs a reset, and if it comes back, replacing. \
             See: nvidia-smi -q -d ECC",
        ),
        218 => wrong("The driver does not accept valid PTX. Update it, and report this with: fa-doctor report"),
        700 | 715 | 716 | 718 => wrong(
            "The kernel is proven against such accesses, so suspect driver or hardware. See: dmesg | grep -i xid; \
             rule out overclocking and run again",
        ),
        701 => wrong("The GPU has too few registers for the kernel. Report this with: fa-doctor report"),
        702 => wrong(
            "The kernel ran into the time limit that protects a display. Run it without one, or on another GPU: \
             fa-doctor smoke --device 1",
        ),
        719 | 721 => wrong("The launch failed in the GPU. See why: dmesg | grep -i xid"),
        800 => kept(PERMISSION),
        802 => kept("The fabric manager is not running. Start it: sudo systemctl start nvidia-fabricmanager"),
        803 => kept(
            "The library and the kernel driver are of different versions, as after an update without a reboot. \
             Compare: nvidia-smi; cat /proc/driver/nvidia/version; then reboot",
        ),
        804 => kept(
            "The cuda-compat library is in use, which works on data centre GPUs only. Take it off the search path: \
             echo $LD_LIBRARY_PATH",
        ),
        805..=809 => kept(MPS),
        // An unknown error at the start is mostly a driver that cannot reach its device files.
        _ if machine.nodes == Nodes::Forbidden => kept(PERMISSION),
        999 if machine.nodes != Nodes::Usable => kept(
            "The driver cannot reach the GPU: after a suspend its module must be loaded anew: \
             sudo rmmod nvidia_uvm; sudo modprobe nvidia_uvm",
        ),
        _ => wrong("See what the kernel driver says: dmesg | grep -i -e nvrm -e xid"),
    }
}

#[cfg(unix)]
fn nodes(folder: &Path) -> Nodes {
    use rustix::fs::{Access, access};
    if !cfg!(target_os = "linux") {
        return Nodes::Unknown;
    }
    // WSL has one file for all GPUs.
    let files = ["nvidiactl", "dxg"].map(|name| folder.join(name));
    match files.iter().find(|file| file.exists()) {
        None => Nodes::Missing,
        Some(file) if access(file.as_path(), Access::READ_OK | Access::WRITE_OK).is_err() => Nodes::Forbidden,
        Some(_) => Nodes::Usable,
    }
}

#[cfg(not(unix))]
fn nodes(_folder: &Path) -> Nodes {
    Nodes::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> CudaError {
        CudaError { code, name: String::new(), text: String::new() }
    }

    #[test]
    fn no_device_has_the_most_likely_reason() {
        let text = |machine: &Machine| advice(&error(100), machine).text;
        let hidden = Machine { visible_devices: Some(String::new()), ..Machine::default() };
        assert!(text(&hidden).contains("hides every GPU"));
        let container = Machine { nodes: Nodes::Missing, container: true, ..Machine::default() };
        assert!(text(&container).contains("--gpus all"));
        let forbidden = Machine { nodes: Nodes::Forbidden, ..Machine::default() };
        assert!(text(&forbidden).contains("may not open"));
        let bare = Machine { nodes: Nodes::Missing, ..Machine::default() };
        assert!(text(&bare).contains("modprobe"));
        let mig = Machine { nodes: Nodes::Usable, visible_devices: Some("MIG-1".into()), ..Machine::default() };
        assert!(text(&mig).contains("MIG instance"));
    }

    #[test]
    fn every_known_error_says_whether_it_proves_anything() {
        let machine = Machine::default();
        for code in [2, 34, 46, 100, 101, 209, 221, 222, 223, 800, 802, 803, 804, 805] {
            assert!(advice(&error(code), &machine).unchecked, "{code}");
        }
        for code in [214, 218, 700, 702, 716, 719] {
            assert!(!advice(&error(code), &machine).unchecked, "{code}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn device_files_are_looked_at() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nodes(folder.path()), Nodes::Missing);
        let file = folder.path().join("nvidiactl");
        std::fs::write(&file, "").unwrap();
        assert_eq!(nodes(folder.path()), Nodes::Usable);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
        // root may open anything.
        let root = rustix::process::geteuid().is_root();
        assert_eq!(nodes(folder.path()), if root { Nodes::Usable } else { Nodes::Forbidden });
    }
}

//! GPUs and driver of this machine, where there are any.
//!
//! Asks the driver library, opened at run time; what it cannot say is read from `/proc/driver/nvidia`. Nothing here fails
//! where there is no GPU, no driver, or half of one.

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

use cudarc::driver::sys;
use serde::Serialize;

use crate::native::arch::CudaVersion;

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// `NVIDIA GeForce RTX 5090`.
    pub name: String,
    /// `sm_120`, if the driver library could be asked.
    pub arch: Option<String>,
}

/// What there is on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hardware {
    /// The GPUs, in the driver's order; those that CUDA_VISIBLE_DEVICES hides are not among them.
    pub gpus: Vec<Gpu>,
    /// The newest CUDA version that the driver knows (`13.0`).
    #[serde(serialize_with = "as_text")]
    pub cuda: Option<CudaVersion>,
    /// The driver's own version (`580.65.06`).
    pub driver: Option<String>,
    /// Why the GPUs cannot be used, where there is something of a driver.
    pub trouble: Option<String>,
}

fn as_text<S: serde::Serializer>(version: &Option<CudaVersion>, serializer: S) -> Result<S::Ok, S::Error> {
    version.map(|version| version.to_string()).serialize(serializer)
}

impl Hardware {
    /// This machine's, looked at once.
    pub fn detect() -> &'static Hardware {
        static HARDWARE: OnceLock<Hardware> = OnceLock::new();
        HARDWARE.get_or_init(|| {
            let mut hardware = driver_library();
            kernel_driver(Path::new("/proc/driver/nvidia"), &mut hardware);
            hardware
        })
    }

    /// Every architecture among the GPUs, each once.
    pub fn architectures(&self) -> Vec<String> {
        let mut found: Vec<String> = self.gpus.iter().filter_map(|gpu| gpu.arch.clone()).collect();
        found.sort();
        found.dedup();
        found
    }
}

/// Adds what the kernel driver publishes to what the library said.
fn kernel_driver(folder: &Path, hardware: &mut Hardware) {
    let Ok(version) = std::fs::read_to_string(folder.join("version")) else { return };
    hardware.driver = release(&version);
    if !hardware.gpus.is_empty() {
        return;
    }
    let Ok(entries) = std::fs::read_dir(folder.join("gpus")) else { return };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        if let Ok(text) = std::fs::read_to_string(folder.join("information")) {
            let model = text.lines().find_map(|line| line.strip_prefix("Model:")).map_or("unknown GPU", str::trim);
            hardware.gpus.push(Gpu { name: model.to_owned(), arch: None });
        }
    }
    if !hardware.gpus.is_empty() && hardware.trouble.is_none() {
        hardware.trouble = Some(
            "the kernel driver is there, but libcuda.so.1 is not: start the container with `--gpus all`".to_owned(),
        );
    }
}

/// `580.65.06` of `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ..`.
fn release(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    let is_version = |word: &&str| {
        word.contains('.') && word.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
    };
    line.split_ascii_whitespace().find(is_version).map(str::to_owned)
}

type Init = unsafe extern "C" fn(u32) -> sys::CUresult;
type DriverGetVersion = unsafe extern "C" fn(*mut c_int) -> sys::CUresult;
type DeviceGetCount = unsafe extern "C" fn(*mut c_int) -> sys::CUresult;
type DeviceGet = unsafe extern "C" fn(*mut sys::CUdevice, c_int) -> sys::CUresult;
type DeviceGetName = unsafe extern "C" fn(*mut c_char, c_int, sys::CUdevice) -> sys::CUresult;
type DeviceGetAttribute = unsafe extern "C" fn(*mut c_int, sys::CUdevice_attribute, sys::CUdevice) -> sys::CUresult;

/// Asks libcuda. Every function is looked up by hand: the bindings panic where one is missing.
fn driver_library() -> Hardware {
    // SAFETY: loads a library of the driver and runs its initialisers, as every CUDA program does.
    if !unsafe { sys::is_culib_present() } {
        return Hardware::default();
    }
    // SAFETY: present, so that this does not panic; the types are those of cuda.h, unchanged since CUDA 4.
    let asked = unsafe {
        let library = sys::culib();
        (|| {
            Some(Functions {
                init: *library.get::<Init>(b"cuInit\0").ok()?,
                driver_get_version: *library.get::<DriverGetVersion>(b"cuDriverGetVersion\0").ok()?,
                device_get_count: *library.get::<DeviceGetCount>(b"cuDeviceGetCount\0").ok()?,
                device_get: *library.get::<DeviceGet>(b"cuDeviceGet\0").ok()?,
                device_get_name: *library.get::<DeviceGetName>(b"cuDeviceGetName\0").ok()?,
                device_get_attribute: *library.get::<DeviceGetAttribute>(b"cuDeviceGetAttribute\0").ok()?,
            })
        })()
    };
    match asked {
        Some(functions) => functions.ask(),
        None => trouble("libcuda is there, but lacks functions that every driver has"),
    }
}

fn trouble(text: &str) -> Hardware {
    Hardware { trouble: Some(text.to_owned()), ..Hardware::default() }
}

struct Functions {
    init: Init,
    driver_get_version: DriverGetVersion,
    device_get_count: DeviceGetCount,
    device_get: DeviceGet,
    device_get_name: DeviceGetName,
    device_get_attribute: DeviceGetAttribute,
}

impl Functions {
    fn ask(&self) -> Hardware {
        let mut hardware = Hardware::default();
        let mut number: c_int = 0;
        // SAFETY: the calls below pass pointers to live variables of the types that cuda.h names.
        unsafe {
            if (self.driver_get_version)(&mut number) == sys::CUresult::CUDA_SUCCESS && number > 0 {
                hardware.cuda = Some(CudaVersion::from_number(number.unsigned_abs()));
            }
            let status = (self.init)(0);
            if status != sys::CUresult::CUDA_SUCCESS {
                hardware.trouble = Some(advice(status as u32));
                return hardware;
            }
            let mut count: c_int = 0;
            if (self.device_get_count)(&mut count) != sys::CUresult::CUDA_SUCCESS {
                count = 0;
            }
            for index in 0..count {
                hardware.gpus.extend(self.device(index));
            }
        }
        hardware
    }

    /// # Safety
    ///
    /// After a successful `cuInit`.
    unsafe fn device(&self, index: c_int) -> Option<Gpu> {
        let mut device: sys::CUdevice = 0;
        let mut name = [0 as c_char; 256];
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        // SAFETY: pointers to live variables; the name is a C string of at most the length given.
        unsafe {
            let got = (self.device_get)(&mut device, index) == sys::CUresult::CUDA_SUCCESS
                && (self.device_get_name)(name.as_mut_ptr(), 255, device) == sys::CUresult::CUDA_SUCCESS;
            if !got {
                return None;
            }
            let known = (self.device_get_attribute)(&mut major, MAJOR, device) == sys::CUresult::CUDA_SUCCESS
                && (self.device_get_attribute)(&mut minor, MINOR, device) == sys::CUresult::CUDA_SUCCESS;
            Some(Gpu {
                name: CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned(),
                arch: known.then(|| format!("sm_{}{}", major, minor)),
            })
        }
    }
}

/// What an error of `cuInit` means for the user.
fn advice(status: u32) -> String {
    match status {
        34 => "the libcuda that is found is the toolkit's stub: remove its folder from LD_LIBRARY_PATH".to_owned(),
        100 => "the driver sees no GPU (or CUDA_VISIBLE_DEVICES hides them)".to_owned(),
        803 => "the driver library and the kernel driver differ in version: reboot after the driver update".to_owned(),
        804 => "the CUDA compatibility package does not support this GPU: remove it from LD_LIBRARY_PATH".to_owned(),
        999 => "the driver failed to start (`nvidia-smi` and `dmesg` may say why)".to_owned(),
        status => format!("the driver failed to start with CUDA error {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_fails_without_a_gpu() {
        let hardware = Hardware::detect();
        assert_eq!(hardware, Hardware::detect());
        assert_eq!(hardware.architectures().is_empty(), hardware.gpus.iter().all(|gpu| gpu.arch.is_none()));
    }

    #[test]
    fn reads_the_kernel_driver() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let gpu = folder.path().join("gpus/0000:01:00.0");
        std::fs::create_dir_all(&gpu).expect("a folder");
        let version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: gcc 13.3.0\n";
        std::fs::write(folder.path().join("version"), version).expect("a file");
        std::fs::write(gpu.join("information"), "Model: \t\t NVIDIA RTX PRO 6000\nIRQ: 1\n").expect("a file");
        let mut hardware = Hardware::default();
        kernel_driver(folder.path(), &mut hardware);
        assert_eq!(hardware.driver.as_deref(), Some("580.65.06"));
        assert_eq!(hardware.gpus, [Gpu { name: "NVIDIA RTX PRO 6000".to_owned(), arch: None }]);
        assert!(hardware.trouble.is_some_and(|text| text.contains("--gpus all")));
        let mut nothing = Hardware::default();
        kernel_driver(&folder.path().join("none"), &mut nothing);
        assert_eq!(nothing, Hardware::default());
    }

    #[test]
    fn old_driver_texts() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024";
        assert_eq!(release(text).as_deref(), Some("535.183.01"));
        assert_eq!(release("nothing"), None);
    }
}

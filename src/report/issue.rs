//! An issue-ready block: what a maintainer asks for first, with private paths shortened and nothing secret.

use std::io::{self, Write};

use super::markdown::{self, code, fenced};
use super::private::published;
use super::{Report, View};
use crate::environment::RootId;
use crate::environment::gpu::Hardware;

/// Settings that change which attention runs; other variables are not looked at.
const VARIABLES: [&str; 13] = [
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "CUTE_DSL_ARCH",
    "FLASH_ATTENTION_ARCH",
    "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "QUACK_ARCH",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_PTXAS_PATH",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_FLASH_ATTN_VERSION",
];

/// A JSON result of `probe` or `smoke` to put into the block.
#[derive(Debug)]
pub struct Attachment {
    /// `probe` or `smoke`.
    pub title: &'static str,
    /// As the subcommand printed it.
    pub json: String,
}

/// Shows paths as the packages name them: where the environment lies is nobody's business.
struct Private<'v>(&'v dyn View);

impl View for Private<'_> {
    fn source(&self, root: RootId, path: &str) -> Option<String> {
        self.0.source(root, path)
    }

    fn place(&self, _root: RootId, path: &str) -> String {
        path.to_owned()
    }
}

/// Writes the block.
pub fn write(report: &Report, view: &dyn View, attachments: &[Attachment], out: &mut dyn Write) -> io::Result<()> {
    let mut block = Vec::new();
    markdown::write(report, &Private(view), &mut block)?;
    machine(Hardware::detect(), &mut block)?;
    for attachment in attachments {
        writeln!(block, "<details><summary><b>{}</b></summary>\n", attachment.title)?;
        fenced(&attachment.json, &mut block)?;
        writeln!(block, "</details>\n")?;
    }
    let home = std::env::home_dir().map(|home| home.display().to_string());
    let text = published(&String::from_utf8_lossy(&block), home.as_deref(), &report.environment.roots);
    out.write_all(text.as_bytes())
}

/// The machine, as far as it matters to attention.
fn machine(hardware: &Hardware, out: &mut dyn Write) -> io::Result<()> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for gpu in &hardware.gpus {
        let arch = gpu.arch.as_deref().unwrap_or("architecture not known");
        rows.push(("GPU", format!("{} ({arch})", gpu.name)));
    }
    if hardware.gpus.is_empty() {
        rows.push(("GPU", "none found".to_owned()));
    }
    rows.extend(hardware.driver.iter().map(|driver| ("driver", driver.clone())));
    rows.extend(hardware.cuda.iter().map(|cuda| ("CUDA of the driver", cuda.to_string())));
    rows.extend(hardware.trouble.iter().map(|trouble| ("trouble", trouble.clone())));
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).map(|name| name.trim_matches('"'));
    rows.push(("system", format!("{} ({})", name.unwrap_or(std::env::consts::OS), std::env::consts::ARCH)));
    for name in VARIABLES {
        rows.extend(std::env::var(name).ok().map(|value| (name, value)));
    }
    writeln!(out, "| machine | |\n|---|---|")?;
    for (name, value) in rows {
        writeln!(out, "| {name} | {} |", code(&value))?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_block_has_findings_machine_and_results_and_no_private_place() {
        let attachment = [Attachment { title: "smoke", json: "{\"device\": null}".into() }];
        let block = sample::render(|report, view, out| write(report, view, &attachment, out));
        for part in ["error FA001", "| GPU |", "| system |", "<b>smoke</b>", "{\"device\": null}"] {
            assert!(block.contains(part), "{part} in {block}");
        }
        assert!(!block.contains(&format!("{}/flash_attn", sample::ROOT)), "{block}");
    }
}

//! What the library remembers, and how it is told to misbehave.

use std::collections::HashMap;
use std::ffi::CStr;
use std::str::FromStr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ptx::{FaultKind, Memory};

pub use ptx::Module as Parsed;

/// `CUresult`, other than success.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Code(pub i32);

/// Everything between `cuInit` and the end of the process.
#[derive(Default)]
pub struct State {
    pub initialised: bool,
    pub contexts: i32,
    pub memory: Memory,
    pub modules: HashMap<u64, Parsed>,
    pub events: HashMap<u64, Option<Instant>>,
    /// A kernel has failed: so does every call from then on.
    pub failed: Option<Code>,
    last_handle: u64,
}

/// Handles of modules and their functions.
pub struct Module;

impl Module {
    /// Handles are multiples of this; the rest is the number of a function.
    const STEP: u64 = 256;

    pub fn handle_of_function(module: u64, index: usize) -> u64 {
        module + 1 + index as u64
    }

    pub fn of_function(function: u64) -> (u64, usize) {
        (function / Module::STEP * Module::STEP, (function % Module::STEP) as usize - 1)
    }
}

impl State {
    pub fn add_module(&mut self, module: Parsed) -> u64 {
        let handle = self.handle();
        self.modules.insert(handle, module);
        handle
    }

    pub fn add_event(&mut self) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, None);
        handle
    }

    pub fn time(&self, event: u64) -> Result<Instant, Code> {
        self.events.get(&event).copied().flatten().ok_or(Code(400))
    }

    fn handle(&mut self) -> u64 {
        self.last_handle += Module::STEP;
        self.last_handle
    }
}

pub fn state() -> MutexGuard<'static, State> {
    static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value of `FAKE_CUDA_<name>`.
pub fn setting<T: FromStr>(name: &str, default: T) -> T {
    std::env::var(format!("FAKE_CUDA_{name}")).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub fn capability() -> (i32, i32) {
    let text = setting("CAPABILITY", "12.0".to_owned());
    text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?))).unwrap_or((12, 0))
}

/// The beginning of every call: whether it is to misbehave.
pub fn enter(call: &str) -> Result<(), Code> {
    if setting("HANG", String::new()) == call {
        loop {
            std::thread::park();
        }
    }
    if setting("CRASH", String::new()) == call {
        std::process::abort();
    }
    let asks_about_errors = call.starts_with("cuGetError");
    if let Some(code) = state().failed.filter(|_| !asks_about_errors) {
        return Err(code);
    }
    if let Some((failing, code)) = setting("FAIL", String::new()).split_once(':')
        && failing == call
    {
        let code = Code(code.parse().unwrap_or(999));
        if matches!(call, "cuLaunchKernel" | "cuEventSynchronize") {
            state().failed = Some(code);
        }
        return Err(code);
    }
    Ok(())
}

/// What a driver would say of a fault.
pub fn code_of(fault: FaultKind) -> Code {
    Code(match fault {
        FaultKind::OutOfBounds => 700,
        FaultKind::Misaligned => 716,
        FaultKind::Launch => 1,
        _ => 719,
    })
}

/// Name and description of an error.
pub fn error(code: i32) -> Option<(&'static CStr, &'static CStr)> {
    Some(match code {
        1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
        2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
        34 => (c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
        46 => (c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
        100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
        101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        209 => (c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
        214 => (c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
        218 => (c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
        221 => (c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found"),
        222 => (c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the provided PTX was compiled with an unsupported toolchain."),
        400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
        500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
        700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
        716 => (c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
        719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
        803 => {
            (c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system has unsupported display driver / cuda driver combination")
        }
        804 => {
            (c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"forward compatibility was attempted on non supported HW")
        }
        805 => (
            c"CUDA_ERROR_MPS_CONNECTION_FAILED",
            c"MPS client failed to connect to the MPS control daemon or the MPS server",
        ),
        999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
        _ => return None,
    })
}

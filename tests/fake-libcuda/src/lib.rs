//! A `libcuda.so` without a GPU: it interprets the PTX that it is given, and misbehaves when asked to.
//!
//! It exports the entry points that `fa-doctor smoke` may call and no others: a call that changes a setting of the
//! card would end in "missing symbol". What a program must give back is counted, and a leak aborts the process.
//!
//! Environment variables choose the machine and its defect:
//!
//! - `FAKE_CUDA_DEVICES`, `FAKE_CUDA_NAME`, `FAKE_CUDA_CAPABILITY` (`12.0`), `FAKE_CUDA_VERSION` (`13000`),
//!   `FAKE_CUDA_FREE` (bytes), `FAKE_CUDA_MODE` (compute mode)
//! - `FAKE_CUDA_FAIL=cuLaunchKernel:700`: that call fails with that code, and after a launch so does everything
//! - `FAKE_CUDA_HANG=cuEventSynchronize`: that call never returns
//! - `FAKE_CUDA_CRASH=cuInit`: that call ends the process
//! - `FAKE_CUDA_CORRUPT=1`: one bit in the middle of every large copy from the device is wrong

#![allow(non_snake_case, reason = "the names of the driver API")]
#![allow(clippy::too_many_arguments, reason = "the signatures of the driver API")]
#![allow(clippy::missing_safety_doc, reason = "the safety rules of the driver API")]
#![allow(unsafe_op_in_unsafe_fn, reason = "every entry point trusts its caller's pointers, as the driver does")]

mod state;

use std::ffi::{CStr, c_char, c_float, c_int, c_uint, c_void};
use std::time::Instant;

use state::{Code, Module, setting, state};

const INVALID_VALUE: Code = Code(1);
const OUT_OF_MEMORY: Code = Code(2);
const NOT_INITIALIZED: Code = Code(3);
const INVALID_DEVICE: Code = Code(101);
const INVALID_CONTEXT: Code = Code(201);
const NO_BINARY_FOR_GPU: Code = Code(209);
const INVALID_PTX: Code = Code(218);
const UNSUPPORTED_PTX_VERSION: Code = Code(222);
const NOT_FOUND: Code = Code(500);

/// Bytes of memory in the GPU.
const TOTAL_MEMORY: u64 = 32 << 30;

/// Defines an entry point: it misbehaves if asked to, else runs the body.
macro_rules! entry {
    ($name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            unsafe fn body($($argument: $kind),*) -> Result<(), Code> $body
            match state::enter(stringify!($name)).and_then(|()| body($($argument),*)) {
                Ok(()) => 0,
                Err(Code(code)) => code,
            }
        }
    };
}

// ---- driver and device ----

entry!(cuInit(_flags: c_uint) {
    // A cached kernel would hide a compiler that does not work.
    if std::env::var("CUDA_CACHE_DISABLE").as_deref() != Ok("1") {
        eprintln!("fake-libcuda: CUDA_CACHE_DISABLE is not set");
        std::process::abort();
    }
    state().initialised = true;
    Ok(())
});

entry!(cuDriverGetVersion(version: *mut c_int) {
    version.write(setting("VERSION", 13000));
    Ok(())
});

entry!(cuDeviceGetCount(count: *mut c_int) {
    if !state().initialised {
        return Err(NOT_INITIALIZED);
    }
    count.write(setting("DEVICES", 1));
    Ok(())
});

entry!(cuDeviceGet(device: *mut c_int, number: c_int) {
    if number < 0 || number >= setting("DEVICES", 1) {
        return Err(INVALID_DEVICE);
    }
    device.write(number);
    Ok(())
});

entry!(cuDeviceGetName(to: *mut c_char, length: c_int, _device: c_int) {
    let mut name = setting("NAME", "Fake GPU".to_owned()).into_bytes();
    name.truncate(length as usize - 1);
    name.push(0);
    std::ptr::copy_nonoverlapping(name.as_ptr(), to.cast(), name.len());
    Ok(())
});

entry!(cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
    let (major, minor) = state::capability();
    value.write(match attribute {
        20 => setting("MODE", 0),
        75 => major,
        76 => minor,
        _ => return Err(INVALID_VALUE),
    });
    Ok(())
});

// ---- context and memory ----

entry!(cuDevicePrimaryCtxRetain(context: *mut *mut c_void, _device: c_int) {
    state().contexts += 1;
    context.write(std::ptr::dangling_mut());
    Ok(())
});

entry!(cuDevicePrimaryCtxRelease_v2(_device: c_int) {
    let mut state = state();
    state.contexts -= 1;
    let left = (state.memory.used(), state.modules.len(), state.events.len());
    if left != (0, 0, 0) {
        eprintln!("fake-libcuda: leaked (bytes, modules, events) {left:?}");
        std::process::abort();
    }
    Ok(())
});

entry!(cuCtxSetCurrent(_context: *mut c_void) { Ok(()) });

entry!(cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
    free.write(setting("FREE", TOTAL_MEMORY) as usize);
    total.write(TOTAL_MEMORY as usize);
    Ok(())
});

entry!(cuMemAlloc_v2(address: *mut u64, bytes: usize) {
    let mut state = state();
    if state.contexts == 0 {
        return Err(INVALID_CONTEXT);
    }
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if (state.memory.used() + bytes) as u64 > setting("FREE", TOTAL_MEMORY) {
        return Err(OUT_OF_MEMORY);
    }
    // 0xff bytes are a NaN in every float format.
    address.write(state.memory.allocate(vec![0xff; bytes]));
    Ok(())
});

entry!(cuMemFree_v2(address: u64) {
    if state().memory.free(address) { Ok(()) } else { Err(INVALID_VALUE) }
});

entry!(cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
    let from = std::slice::from_raw_parts(from.cast::<u8>(), bytes);
    state().memory.write(to, bytes).map_err(|_| INVALID_VALUE)?.copy_from_slice(from);
    Ok(())
});

entry!(cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
    let to = std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes);
    to.copy_from_slice(state().memory.read(from, bytes).map_err(|_| INVALID_VALUE)?);
    if setting("CORRUPT", 0) != 0 && bytes > 64 {
        // The high bit of an exponent.
        to[bytes / 2 / 2 * 2 + 1] ^= 0x40;
    }
    Ok(())
});

// ---- modules and launches ----

entry!(cuModuleLoadDataEx(
    module: *mut *mut c_void,
    image: *const c_char,
    count: c_uint,
    options: *const c_int,
    values: *const *mut c_void,
) {
    let log = |text: &str| {
        // CU_JIT_ERROR_LOG_BUFFER and its size.
        let find = |wanted| (0..count as usize).find(|i| options.add(*i).read() == wanted);
        if let (Some(buffer), Some(size)) = (find(5), find(6)) {
            let (buffer, size) = (values.add(buffer).read().cast::<u8>(), values.add(size).read() as usize);
            let length = text.len().min(size - 1);
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, length);
            buffer.add(length).write(0);
        }
    };
    let text = CStr::from_ptr(image).to_str().map_err(|_| INVALID_PTX)?;
    let parsed = ptx::Module::parse(text).map_err(|error| {
        log(&format!("ptxas fatal: {error}"));
        INVALID_PTX
    })?;
    // What PTX ISA a CUDA release reads: 7.x came with 11.x, 8.x with 12.x, 9.x with 13.x.
    let needed = (parsed.version.0 as i32 + 4) * 1000 + parsed.version.1 as i32 * 10;
    if needed > setting("VERSION", 13000) {
        return Err(UNSUPPORTED_PTX_VERSION);
    }
    let (major, minor) = state::capability();
    if parsed.target as i32 > major * 10 + minor {
        return Err(NO_BINARY_FOR_GPU);
    }
    module.write(state().add_module(parsed) as *mut c_void);
    Ok(())
});

entry!(cuModuleUnload(module: *mut c_void) {
    if state().modules.remove(&(module as u64)).is_some() { Ok(()) } else { Err(INVALID_VALUE) }
});

entry!(cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
    let name = CStr::from_ptr(name).to_str().map_err(|_| NOT_FOUND)?;
    let state = state();
    let module = module as u64;
    let kernels = &state.modules.get(&module).ok_or(INVALID_VALUE)?.kernels;
    let index = kernels.iter().position(|kernel| kernel.name == name).ok_or(NOT_FOUND)?;
    function.write(Module::handle_of_function(module, index) as *mut c_void);
    Ok(())
});

entry!(cuFuncGetAttribute(value: *mut c_int, attribute: c_int, _function: *mut c_void) {
    value.write(match attribute {
        // Local memory, registers.
        3 => setting("LOCAL", 0),
        4 => 168,
        _ => return Err(INVALID_VALUE),
    });
    Ok(())
});

entry!(cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
    block_x: c_uint, block_y: c_uint, block_z: c_uint,
    dynamic_shared: c_uint, _stream: *mut c_void,
    parameters: *const *const c_void, _extra: *const c_void,
) {
    let mut state = state();
    let (module, index) = Module::of_function(function as u64);
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    if dynamic_shared != 0 || grid.contains(&0) {
        return Err(INVALID_VALUE);
    }
    let state = &mut *state;
    let kernel = &state.modules.get(&module).ok_or(INVALID_VALUE)?.kernels[index];
    let mut arguments = Vec::new();
    for (number, (_, bytes)) in kernel.parameters.iter().enumerate() {
        let mut value = [0; 8];
        std::ptr::copy_nonoverlapping(parameters.add(number).read().cast::<u8>(), value.as_mut_ptr(), *bytes);
        arguments.push(u64::from_le_bytes(value));
    }
    let launch = ptx::Launch { kernel, grid, block, arguments: &arguments, seed: setting("SEED", 1) };
    launch.run(&mut state.memory).map_err(|fault| {
        eprintln!("fake-libcuda: {fault}");
        // As with a real driver, nothing works in this process any more.
        let code = state::code_of(fault.kind);
        state.failed = Some(code);
        code
    })?;
    Ok(())
});

// ---- events ----

entry!(cuEventCreate(event: *mut *mut c_void, _flags: c_uint) {
    event.write(state().add_event() as *mut c_void);
    Ok(())
});

entry!(cuEventRecord(event: *mut c_void, _stream: *mut c_void) {
    *state().events.get_mut(&(event as u64)).ok_or(INVALID_VALUE)? = Some(Instant::now());
    Ok(())
});

entry!(cuEventSynchronize(event: *mut c_void) {
    state().time(event as u64).map(|_| ())
});

entry!(cuEventElapsedTime(ms: *mut c_float, begin: *mut c_void, end: *mut c_void) {
    let state = state();
    ms.write((state.time(end as u64)? - state.time(begin as u64)?).as_secs_f32() * 1000.0);
    Ok(())
});

entry!(cuEventDestroy_v2(event: *mut c_void) {
    if state().events.remove(&(event as u64)).is_some() { Ok(()) } else { Err(INVALID_VALUE) }
});

// ---- errors ----

entry!(cuGetErrorName(code: c_int, text: *mut *const c_char) {
    text.write(state::error(code).ok_or(INVALID_VALUE)?.0.as_ptr());
    Ok(())
});

entry!(cuGetErrorString(code: c_int, text: *mut *const c_char) {
    text.write(state::error(code).ok_or(INVALID_VALUE)?.1.as_ptr());
    Ok(())
});

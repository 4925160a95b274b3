//! The CUDA driver, through the thin layer of cudarc. The only unsafe code of the crate's own.
//!
//! Nothing here changes a setting of the card: no limit, no compute mode, no clock, no cache configuration.
//! Buffers, events, the module and the context are given back when they are dropped.

use std::ffi::{CStr, CString, c_void};
use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::kernel::{Argument, Buffer, Launch};
use super::problem::Problem;

/// An error of the driver.
#[derive(Debug, Clone)]
pub struct CudaError {
    /// `CUresult`.
    pub code: i32,
    /// `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// The driver's own words.
    pub text: String,
}

impl std::fmt::Display for CudaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.code, self.text)
    }
}

impl std::error::Error for CudaError {}

impl From<result::DriverError> for CudaError {
    fn from(error: result::DriverError) -> CudaError {
        let text = |s: Result<&CStr, _>| s.map_or_else(|_| "unknown error".to_owned(), |s| s.to_string_lossy().into());
        CudaError { code: error.0 as i32, name: text(error.error_name()), text: text(error.error_string()) }
    }
}

/// Results of driver calls.
pub type CudaResult<T> = Result<T, CudaError>;

/// Whether the driver library can be opened.
pub fn library_found() -> bool {
    // SAFETY: opening a library runs its initialisers; this is the driver that every CUDA program opens.
    unsafe { sys::is_culib_present() }
}

/// The CUDA version that the driver supports: 13000 for 13.0.
pub fn driver_version() -> CudaResult<i32> {
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

/// Starts the driver.
pub fn start() -> CudaResult<()> {
    Ok(result::init()?)
}

/// The GPUs that this process may use.
pub fn device_count() -> CudaResult<usize> {
    Ok(usize::try_from(result::device::get_count()?).unwrap_or(0))
}

/// A GPU, before anything runs on it.
#[derive(Debug, Clone, Copy)]
pub struct Gpu(sys::CUdevice);

impl Gpu {
    /// The GPU with that number.
    pub fn new(number: usize) -> CudaResult<Gpu> {
        Ok(Gpu(result::device::get(i32::try_from(number).unwrap_or(i32::MAX))?))
    }

    /// As the driver names it.
    pub fn name(self) -> CudaResult<String> {
        Ok(result::device::get_name(self.0)?)
    }

    /// Major and minor.
    pub fn compute_capability(self) -> CudaResult<(i32, i32)> {
        use sys::CUdevice_attribute_enum as Attribute;
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    /// Whether its administrator has forbidden computations on it.
    pub fn is_prohibited(self) -> CudaResult<bool> {
        let mode = self.attribute(sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?;
        Ok(mode == sys::CUcomputemode_enum::CU_COMPUTEMODE_PROHIBITED as i32)
    }

    fn attribute(self, attribute: sys::CUdevice_attribute) -> CudaResult<i32> {
        // SAFETY: the device was given out by the driver.
        Ok(unsafe { result::device::get_attribute(self.0, attribute) }?)
    }
}

/// The primary context of a GPU, current on this thread.
pub struct Context(Gpu);

impl Context {
    /// Opens the GPU for work.
    pub fn new(gpu: Gpu) -> CudaResult<Rc<Context>> {
        // SAFETY: the device was given out by the driver; the context is released when the value is dropped, which
        // is after everything that holds a reference to it.
        unsafe {
            let context = result::primary_ctx::retain(gpu.0)?;
            let owner = Rc::new(Context(gpu));
            result::ctx::set_current(context)?;
            Ok(owner)
        }
    }

    /// Bytes of memory: free and in all.
    pub fn memory(&self) -> CudaResult<(usize, usize)> {
        Ok(result::mem_get_info()?)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: balances the retain in `new`. After a failed kernel every call fails, and there is nothing to do.
        let _ = unsafe { result::primary_ctx::release(self.0.0) };
    }
}

/// The compiled kernels.
pub struct Module {
    module: sys::CUmodule,
    _context: Rc<Context>,
}

/// Why PTX did not load.
#[derive(Debug)]
pub struct LoadError {
    /// Of `cuModuleLoadDataEx`.
    pub error: CudaError,
    /// What the driver's compiler wrote.
    pub log: String,
}

impl Module {
    /// Compiles PTX for this GPU.
    pub fn load(context: &Rc<Context>, ptx: &str) -> Result<Module, LoadError> {
        let mut log = vec![0_u8; 4096];
        let plain = |error: CudaError| LoadError { error, log: String::new() };
        let text = CString::new(ptx).map_err(|_| {
            let text = "the PTX contains a zero byte".to_owned();
            plain(CudaError { code: 200, name: "CUDA_ERROR_INVALID_IMAGE".to_owned(), text })
        })?;
        let mut options = [
            sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER,
            sys::CUjit_option_enum::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        let mut module = std::ptr::null_mut();
        // SAFETY: text is terminated; both options have a value of the type the driver documents for them (a buffer
        // and its size, passed in the place of a pointer); buffer and text outlive the call.
        let code = unsafe {
            sys::cuModuleLoadDataEx(&mut module, text.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        };
        match code.result() {
            Ok(()) => Ok(Module { module, _context: Rc::clone(context) }),
            Err(error) => {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let log = String::from_utf8_lossy(&log[..end]).trim().to_owned();
                Err(LoadError { error: error.into(), log })
            }
        }
    }

    /// The entry point of that name.
    pub fn function(&self, name: &str) -> CudaResult<Function<'_>> {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded, and the function cannot outlive it.
        let function = unsafe { result::module::get_function(self.module, name) }?;
        Ok(Function { function, _module: self })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded by `load`, and no function outlives it. See `Context::drop` for the ignored error.
        let _ = unsafe { result::module::unload(self.module) };
    }
}

/// An entry point.
#[derive(Clone, Copy)]
pub struct Function<'a> {
    function: sys::CUfunction,
    _module: &'a Module,
}

impl Function<'_> {
    /// Registers of a thread.
    pub fn registers(&self) -> CudaResult<i32> {
        self.attribute(sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_NUM_REGS)
    }

    /// Bytes of local memory of a thread: what the compiler has spilled.
    pub fn local_bytes(&self) -> CudaResult<i32> {
        self.attribute(sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)
    }

    fn attribute(&self, attribute: sys::CUfunction_attribute_enum) -> CudaResult<i32> {
        // SAFETY: the function belongs to a loaded module.
        Ok(unsafe { result::function::get_function_attribute(self.function, attribute) }?)
    }
}

/// Device memory.
struct Allocation(sys::CUdeviceptr);

impl Allocation {
    fn new(bytes: usize) -> CudaResult<Allocation> {
        // SAFETY: freed when dropped. The driver refuses zero bytes.
        Ok(Allocation(unsafe { result::malloc_sync(bytes.max(1)) }?))
    }

    fn with<T>(contents: &[T]) -> CudaResult<Allocation> {
        let allocation = Allocation::new(size_of_val(contents))?;
        if !contents.is_empty() {
            // SAFETY: the allocation is as large as the contents, which are integers.
            unsafe { result::memcpy_htod_sync(allocation.0, contents) }?;
        }
        Ok(allocation)
    }

    fn read<T: Default + Clone>(&self, length: usize) -> CudaResult<Vec<T>> {
        let mut contents = vec![T::default(); length];
        if length > 0 {
            // SAFETY: called with the length and the integer or float type that the allocation was made for.
            unsafe { result::memcpy_dtoh_sync(&mut contents, self.0) }?;
        }
        Ok(contents)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, and every launch that uses it has ended or failed for good.
        let _ = unsafe { result::free_sync(self.0) };
    }
}

/// A problem in device memory, ready to run.
pub struct Prepared<'a> {
    function: Function<'a>,
    launch: Launch,
    buffers: [Allocation; 8],
    output_length: usize,
    lse_length: usize,
}

/// What the kernel computed.
pub struct Computed {
    /// `(total_q, heads_q, head_dim)`.
    pub o: Vec<u16>,
    /// `(heads_q, total_q)`.
    pub lse: Vec<f32>,
}

impl<'a> Prepared<'a> {
    /// Copies the inputs to the GPU, and fills the outputs with NaNs: what the kernel does not write shows.
    pub fn new(function: Function<'a>, problem: &Problem) -> CudaResult<Prepared<'a>> {
        let case = &problem.case;
        let lse_length = case.total_q() * case.heads_q;
        let output_length = lse_length * case.head_dim;
        let buffers = [
            Allocation::with(&problem.q)?,
            Allocation::with(&problem.k)?,
            Allocation::with(&problem.v)?,
            Allocation::with(&vec![u16::MAX; output_length])?,
            Allocation::with(&vec![f32::NAN; lse_length])?,
            Allocation::with(&problem.starts_q)?,
            Allocation::with(&problem.starts_k)?,
            Allocation::with(&problem.pages)?,
        ];
        Ok(Prepared { function, launch: Launch::new(case), buffers, output_length, lse_length })
    }

    /// Launches the kernel, waits for it, and gives the milliseconds that it took on the GPU.
    pub fn run(&self) -> CudaResult<f64> {
        let (begin, end) = (Event::new()?, Event::new()?);
        begin.record()?;
        self.start()?;
        end.record()?;
        begin.until(&end)
    }

    fn start(&self) -> CudaResult<()> {
        // The driver takes a pointer to each value, so the values must stay in place.
        let mut values: Vec<u64> = self.launch.arguments.iter().map(|a| self.value(*a)).collect();
        let mut pointers: Vec<*mut c_void> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        let ([x, y, z], [bx, by, bz]) = (self.launch.grid, self.launch.block);
        // SAFETY: entry, arguments and buffer sizes belong together: `Launch` and `Prepared::new` come from one case,
        // and the tests run this very launch through an interpreter that checks every access.
        unsafe {
            let stream = std::ptr::null_mut();
            result::launch_kernel(self.function.function, (x, y, z), (bx, by, bz), 0, stream, &mut pointers)?;
        }
        Ok(())
    }

    /// An argument as the low bytes of a word: GPUs are little endian, and so is every host they sit in.
    fn value(&self, argument: Argument) -> u64 {
        match argument {
            Argument::Null => 0,
            Argument::Int(n) => u64::from(n as u32),
            Argument::Float(x) => u64::from(x.to_bits()),
            Argument::Pointer(buffer) => self.buffers[buffer as usize].0,
        }
    }

    /// What the last run computed.
    pub fn output(&self) -> CudaResult<Computed> {
        Ok(Computed {
            o: self.buffers[Buffer::O as usize].read(self.output_length)?,
            lse: self.buffers[Buffer::Lse as usize].read(self.lse_length)?,
        })
    }
}

/// A point in time on the GPU.
struct Event(sys::CUevent);

impl Event {
    fn new() -> CudaResult<Event> {
        // The default flags: others switch timing off.
        Ok(Event(result::event::create(sys::CUevent_flags_enum::CU_EVENT_DEFAULT)?))
    }

    fn record(&self) -> CudaResult<()> {
        // SAFETY: the event is alive; the default stream always is.
        Ok(unsafe { result::event::record(self.0, std::ptr::null_mut()) }?)
    }

    fn until(&self, end: &Event) -> CudaResult<f64> {
        // SAFETY: both events are alive and recorded.
        unsafe {
            result::event::synchronize(end.0)?;
            Ok(f64::from(result::event::elapsed(self.0, end.0)?))
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`. See `Context::drop` for the ignored error.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

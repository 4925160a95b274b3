//! The native stages. They run in a child process, which tells its parent what happens as it happens: when the driver
//! crashes, panics or hangs, the parent knows where.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::advice::{Advice, Machine, advice};
use super::cases;
use super::driver::{self, Computed, Context, CudaError, Gpu, Module, Prepared};
use super::kernel;
use super::problem::{Case, Problem};
use super::reference::{LSE_TOLERANCE, Output, compare, compare_rows};
use super::report::{CaseResult, Device, Stage, StageName, Throughput, Verdict, milliseconds, three_digits};

/// What the child tells: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A stage begins.
    Begin {
        /// Which.
        stage: StageName,
    },
    /// A stage has ended.
    End {
        /// With this result.
        stage: Stage,
    },
    /// The GPU is known.
    Found {
        /// What it is.
        device: Device,
    },
    /// A case has been computed and compared.
    Computed {
        /// With this result.
        case: CaseResult,
    },
    /// The large case has been timed.
    Timed {
        /// With this result.
        throughput: Throughput,
    },
}

/// A launch this short is repeated, because the first one pays for what later ones find in place.
const WARM_UP_MS: f64 = 2.0;

/// How long one launch of the throughput case may take: longer ones are not tried.
const LAUNCH_LIMIT_MS: f64 = 250.0;

/// Launches of the throughput case that are timed, if they fit into this time together.
const LAUNCHES: usize = 21;
const LAUNCHES_MS: f64 = 200.0;

/// A stage that ended the run.
struct Stop {
    message: String,
    advice: Advice,
}

impl Stop {
    fn new(message: impl Into<String>, advice: impl Into<String>, unchecked: bool) -> Stop {
        Stop { message: message.into(), advice: Advice { text: advice.into(), unchecked } }
    }
}

/// The end of a stage: what it found, or why there is no going on.
type Staged<T> = Result<(String, T), Stop>;

/// Runs every native stage on a GPU and tells `emit` what happens.
pub struct Native<'a> {
    /// Number of the GPU.
    pub number: usize,
    /// The architecture that it must have.
    pub arch: Option<&'a str>,
    /// Receives the events.
    pub emit: &'a mut dyn FnMut(Event),
    machine: Machine,
}

impl<'a> Native<'a> {
    /// A run on that GPU.
    pub fn new(number: usize, arch: Option<&'a str>, emit: &'a mut dyn FnMut(Event)) -> Native<'a> {
        Native { number, arch, emit, machine: Machine::look() }
    }

    /// Runs the stages until one fails.
    pub fn run(&mut self) {
        let _ = self.stages();
    }

    /// `None` once a stage has failed: everything there is to say has been told by then.
    fn stages(&mut self) -> Option<()> {
        self.stage(StageName::Library, Native::library)?;
        let version = self.stage(StageName::Driver, Native::driver)?;
        let (context, device) = self.stage(StageName::Device, |native| native.device(version))?;
        (self.emit)(Event::Found { device });
        self.stage(StageName::Memory, |native| native.memory(&context))?;
        let module = self.stage(StageName::Load, |native| native.load(&context))?;
        self.stage(StageName::Cases, |native| native.cases(&module))?;
        self.stage(StageName::Throughput, |native| native.throughput(&module))
    }

    fn stage<T>(&mut self, name: StageName, body: impl FnOnce(&mut Self) -> Staged<T>) -> Option<T> {
        (self.emit)(Event::Begin { stage: name });
        let (stage, value) = match body(self) {
            Ok((message, value)) => {
                (Stage { name, verdict: Verdict::Pass, message, advice: None, unchecked: false }, Some(value))
            }
            Err(Stop { message, advice }) => {
                let Advice { text, unchecked } = advice;
                (Stage { name, verdict: Verdict::Fail, message, advice: Some(text), unchecked }, None)
            }
        };
        (self.emit)(Event::End { stage });
        value
    }

    fn failed(&self, error: &CudaError) -> Stop {
        Stop { message: error.to_string(), advice: advice(error, &self.machine) }
    }

    fn library(&mut self) -> Staged<()> {
        if driver::library_found() {
            Ok(("the NVIDIA driver library is there".into(), ()))
        } else {
            Err(Stop::new("no NVIDIA driver found", self.machine.without_library(), true))
        }
    }

    fn driver(&mut self) -> Staged<i32> {
        driver::start().map_err(|e| self.failed(&e))?;
        let version = driver::driver_version().map_err(|e| self.failed(&e))?;
        let text = version_text(version);
        if version < kernel::MINIMUM_DRIVER {
            let needed = version_text(kernel::MINIMUM_DRIVER);
            let message = format!("the driver supports CUDA {text}; the kernel needs {needed}");
            let advice = "Install a newer driver. See which: cat /proc/driver/nvidia/version";
            return Err(Stop::new(message, advice, true));
        }
        Ok((format!("supports CUDA {text}"), version))
    }

    fn device(&mut self, version: i32) -> Staged<(std::rc::Rc<Context>, Device)> {
        let count = driver::device_count().map_err(|e| self.failed(&e))?;
        if self.number >= count {
            let code = if count == 0 { 100 } else { 101 };
            let text = format!("there is no GPU {}: {count} found", self.number);
            let error = CudaError { code, name: String::new(), text: text.clone() };
            return Err(Stop { message: text, advice: advice(&error, &self.machine) });
        }
        let gpu = Gpu::new(self.number).map_err(|e| self.failed(&e))?;
        let name = gpu.name().map_err(|e| self.failed(&e))?;
        let (major, minor) = gpu.compute_capability().map_err(|e| self.failed(&e))?;
        let arch = format!("sm_{major}{minor}");
        let title = format!("GPU {}: {name}, {arch}", self.number);
        let device = Device { name, arch, driver: version_text(version) };
        if let Some(wanted) = self.arch.filter(|wanted| *wanted != device.arch) {
            let advice = "Choose the GPU with --device N, or leave --arch out. List them: \
                          nvidia-smi --query-gpu=index,name,compute_cap --format=csv";
            return Err(Stop::new(format!("{title}: not {wanted}"), advice, true));
        }
        if (major, minor) < kernel::MINIMUM_CAPABILITY {
            let advice = "No flash-attention 2, 3 or 4 runs on it either: choose a backend without it, or another GPU. \
                          List them: nvidia-smi --query-gpu=index,name,compute_cap --format=csv";
            return Err(Stop::new(format!("{title}: older than the kernel's sm_80"), advice, true));
        }
        if gpu.is_prohibited().map_err(|e| self.failed(&e))? {
            let advice = "Its compute mode is Prohibited. Whoever administers it can run: sudo nvidia-smi -c DEFAULT";
            return Err(Stop::new(format!("{title}: closed to computations"), advice, true));
        }
        let context = Context::new(gpu).map_err(|e| self.failed(&e))?;
        Ok((title, (context, device)))
    }

    fn memory(&mut self, context: &Context) -> Staged<()> {
        let (free, total) = context.memory().map_err(|e| self.failed(&e))?;
        let longest = cases::throughput(cases::THROUGHPUT_LENGTHS[cases::THROUGHPUT_LENGTHS.len() - 1]);
        let needed = cases::matrix().iter().chain([&longest]).map(Case::device_bytes).max().unwrap_or(0);
        let text = |bytes: usize| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let found = format!("{} MiB needed, {} of {} free", needed.div_ceil(1 << 20), text(free), text(total));
        if free < needed {
            let advice = "Other processes use the GPU's memory. See which: nvidia-smi";
            return Err(Stop::new(found, advice, true));
        }
        Ok((found, ()))
    }

    fn load(&mut self, context: &std::rc::Rc<Context>) -> Staged<Module> {
        let begin = Instant::now();
        let module = Module::load(context, kernel::PTX).map_err(|e| {
            let mut stop = self.failed(&e.error);
            if !e.log.is_empty() {
                stop.message = format!("{}\n{}", stop.message, e.log);
            }
            stop
        })?;
        let seconds = begin.elapsed().as_secs_f64();
        let (mut registers, mut spilled) = (Vec::new(), 0);
        for case in cases::matrix() {
            let function = module.function(&kernel::entry(&case)).map_err(|e| self.failed(&e))?;
            registers.push(function.registers().map_err(|e| self.failed(&e))?);
            spilled = spilled.max(function.local_bytes().map_err(|e| self.failed(&e))?);
        }
        let (low, high) = (registers.iter().min().copied(), registers.iter().max().copied());
        let (low, high) = (low.unwrap_or(0), high.unwrap_or(0));
        let time = milliseconds(seconds * 1000.0);
        // No assembler that we know spills; on a GPU of the future a driver might, and it would only be slow.
        let spills = if spilled > 0 { format!(", {spilled} bytes spilled") } else { String::new() };
        Ok((format!("{} compiled in {time}, {low} to {high} registers{spills}", kernel::PTX_NAME), module))
    }

    fn cases(&mut self, module: &Module) -> Staged<()> {
        let (mut wrong, mut count) = (Vec::new(), 0);
        let mut worst = 0.0_f64;
        for case in cases::matrix() {
            let problem = Problem::new(case);
            let case = &problem.case;
            let result = self.case(module, &problem).map_err(|error| {
                (self.emit)(Event::Computed { case: result_of(case) });
                let mut stop = self.failed(&error);
                stop.message = format!("case {}: {}", case.name, stop.message);
                stop
            })?;
            count += 1;
            worst = worst.max(result.max_error.unwrap_or(0.0) / result.tolerance);
            if result.verdict == Verdict::Fail {
                wrong.push(case.name);
            }
            (self.emit)(Event::Computed { case: result });
        }
        if wrong.is_empty() {
            return Ok((format!("{count} of {count} right, worst error {:.0} % of its tolerance", worst * 100.0), ()));
        }
        let message = format!("{} of {count} wrong: {}", wrong.len(), wrong.join(", "));
        let advice = "This very PTX is proven right on a CPU, so suspect driver or hardware. Run it again; see \
                      dmesg | grep -i xid; rule out overclocking";
        Err(Stop::new(message, advice, false))
    }

    fn case(&mut self, module: &Module, problem: &Problem) -> Result<CaseResult, CudaError> {
        let case = &problem.case;
        let prepared = Prepared::new(module.function(&kernel::entry(case))?, problem)?;
        let mut ms = prepared.run()?;
        if ms < WARM_UP_MS {
            ms = prepared.run()?;
        }
        let computed = prepared.output()?;
        let deviation = compare(problem, Output { o: &computed.o, lse: Some(&computed.lse) });
        let right = deviation.output <= case.dtype.tolerance() && deviation.lse <= LSE_TOLERANCE;
        Ok(CaseResult {
            max_error: finite(deviation.output),
            lse_error: finite(deviation.lse),
            ms: Some(ms),
            verdict: if right { Verdict::Pass } else { Verdict::Fail },
            ..result_of(case)
        })
    }

    /// Times the longest case that this GPU does in time.
    fn throughput(&mut self, module: &Module) -> Staged<()> {
        let (problem, times, computed) = time_longest(module).map_err(|e| self.failed(&e))?;
        let case = &problem.case;
        let (dtype, heads, head_dim, length) = (case.dtype.name(), case.heads_q, case.head_dim, case.total_q());
        let shape = format!("{dtype}, {heads} heads of {head_dim}, {length} tokens, causal");
        let rows = 8;
        let output = Output { o: &computed.o, lse: Some(&computed.lse) };
        let deviation = compare_rows(&problem, output, length.div_ceil(rows));
        if deviation.output > case.dtype.tolerance() || deviation.lse > LSE_TOLERANCE {
            let message = format!("wrong by {:.1e} in {shape}", deviation.output);
            let advice = "The small cases are right, so suspect memory or heat. See: nvidia-smi -q -d ECC,TEMPERATURE";
            return Err(Stop::new(message, advice, false));
        }
        let ms = times[times.len() / 2];
        let tflops = case.tflops(ms);
        let message = format!("{} TFLOP/s ({shape}: {})", three_digits(tflops), milliseconds(ms));
        (self.emit)(Event::Timed { throughput: Throughput { shape, tokens: length, ms, tflops } });
        Ok((message, ()))
    }
}

/// Runs longer and longer cases while the next one is sure to end in time, and times the last: sorted times, and what it
/// computed.
fn time_longest(module: &Module) -> Result<(Problem, Vec<f64>, Computed), CudaError> {
    let mut lengths = cases::THROUGHPUT_LENGTHS.into_iter().peekable();
    loop {
        let case = cases::throughput(lengths.next().unwrap_or(cases::THROUGHPUT_LENGTHS[0]));
        let problem = Problem::new(case);
        let prepared = Prepared::new(module.function(&kernel::entry(&problem.case))?, &problem)?;
        let ms = prepared.run()?;
        let next_flops = lengths.peek().map(|length| cases::throughput(*length).flops());
        if next_flops.is_some_and(|flops| ms * flops / problem.case.flops() <= LAUNCH_LIMIT_MS) {
            continue;
        }
        let mut times = vec![prepared.run()?];
        while times.len() < LAUNCHES && times.iter().sum::<f64>() < LAUNCHES_MS {
            times.push(prepared.run()?);
        }
        times.sort_by(f64::total_cmp);
        let computed = prepared.output()?;
        drop(prepared);
        return Ok((problem, times, computed));
    }
}

/// A case that has not run.
fn result_of(case: &Case) -> CaseResult {
    CaseResult {
        name: case.name.to_owned(),
        dtype: case.dtype,
        head_dim: case.head_dim,
        max_error: None,
        tolerance: case.dtype.tolerance(),
        lse_error: None,
        ms: None,
        verdict: Verdict::Fail,
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

/// 13000 is 13.0.
fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

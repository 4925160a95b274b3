//! Says on standard error what is going on, if it takes longer than half a second and somebody watches a terminal; with
//! `--verbose`, afterwards where the time went.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work is not worth a flicker.
const PATIENCE: Duration = Duration::from_millis(500);

/// A line on standard error that disappears when the work is done.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Dropped to stop the thread that shows the bar late.
    done: Option<Sender<()>>,
    waiter: Option<JoinHandle<()>>,
    /// What began when, if that is to be told.
    times: Option<Mutex<Vec<(String, Instant)>>>,
}

impl Progress {
    /// Shows progress if standard error is a terminal and `quiet` is not set.
    pub fn new(quiet: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if quiet || !std::io::stderr().is_terminal() {
            return Progress { bar, done: None, waiter: None, times: None };
        }
        let (done, wait) = channel::<()>();
        let late = bar.clone();
        let waiter = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                late.set_draw_target(ProgressDrawTarget::stderr());
                late.enable_steady_tick(Duration::from_millis(100));
            }
        });
        Progress { bar, done: Some(done), waiter: Some(waiter), times: None }
    }

    /// No progress: tests and callers without a terminal.
    pub fn hidden() -> Progress {
        Progress::new(true)
    }

    /// With `verbose`, tells at the end how long each stage took.
    pub fn timed(mut self, verbose: bool) -> Progress {
        self.times = verbose.then(Mutex::default);
        self
    }

    /// What is going on now, with nothing to count.
    pub fn stage(&self, message: &str) {
        self.begin(message);
        self.bar.set_style(ProgressStyle::default_spinner());
        self.bar.set_message(message.to_owned());
    }

    /// What is going on now, in so many steps.
    pub fn steps(&self, message: &str, steps: usize) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {wide_bar} {pos}/{len}") {
            self.bar.set_style(style);
        }
        self.bar.set_length(steps as u64);
        self.bar.set_position(0);
        self.bar.set_message(message.to_owned());
    }

    /// The next step begins.
    pub fn step(&self, name: &str) {
        self.begin(name);
        self.bar.inc(1);
    }

    fn begin(&self, name: &str) {
        if let Some(times) = &self.times {
            times.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), Instant::now()));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let end = Instant::now();
        drop(self.done.take());
        if let Some(waiter) = self.waiter.take() {
            // The thread only waits and draws: if it panicked there is nothing to save, and nothing to show.
            drop(waiter.join());
        }
        self.bar.finish_and_clear();
        let times = self.times.take().map(|times| times.into_inner().unwrap_or_else(PoisonError::into_inner));
        let times = times.unwrap_or_default();
        let ends = times.iter().skip(1).map(|(_, begin)| *begin).chain([end]);
        for ((name, begin), end) in times.iter().zip(ends) {
            eprintln!("{:>8.1} ms  {name}", end.duration_since(*begin).as_secs_f64() * 1000.0);
        }
    }
}

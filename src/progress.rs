//! Says on standard error what is going on, if it takes longer than half a second and somebody watches a terminal.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

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
}

impl Progress {
    /// Shows progress if standard error is a terminal and `quiet` is not set.
    pub fn new(quiet: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if quiet || !std::io::stderr().is_terminal() {
            return Progress { bar, done: None, waiter: None };
        }
        let (done, wait) = channel::<()>();
        let late = bar.clone();
        let waiter = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                late.set_draw_target(ProgressDrawTarget::stderr());
                late.enable_steady_tick(Duration::from_millis(100));
            }
        });
        Progress { bar, done: Some(done), waiter: Some(waiter) }
    }

    /// No progress: tests and callers without a terminal.
    pub fn hidden() -> Progress {
        Progress::new(true)
    }

    /// What is going on now, with nothing to count.
    pub fn stage(&self, message: &str) {
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

    /// One step is done.
    pub fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(waiter) = self.waiter.take() {
            // The thread only waits and draws: if it panicked there is nothing to save, and nothing to show.
            drop(waiter.join());
        }
        self.bar.finish_and_clear();
    }
}

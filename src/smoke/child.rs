//! Child processes that cannot get away: a limit on their silence, and nothing left running afterwards.
//!
//! A child leads a process group of its own, which is killed as a whole when it is silent too long or has ended.
//! It holds the reading end of a pipe whose other end is ours: when we end for whatever reason, the pipe closes, and a
//! child that watches it (see [`end_with_parent`]) ends too.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a child is looked at that says nothing.
const TICK: Duration = Duration::from_millis(20);

/// How long a killed child may take to disappear: one that hangs in the kernel driver cannot.
const REAP: Duration = Duration::from_secs(5);

/// The end of standard error that is kept.
const STDERR_KEPT: usize = 16 << 10;

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    /// Its status; `None` if it was killed because it said nothing for too long.
    pub status: Option<ExitStatus>,
    /// It was killed and is still there: it hangs in the kernel driver.
    pub stuck: Option<u32>,
    /// The end of what it wrote to standard error.
    pub stderr: String,
}

/// Runs a command until it ends. `line` receives each line of its output as it comes, and says whether that is a sign of
/// progress: without one for as long as `limit`, the command is killed.
pub fn supervise(mut command: Command, limit: Duration, mut line: impl FnMut(&str) -> bool) -> io::Result<Ended> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn()?;
    let lines = lines_of(child.stdout.take());
    let stderr = tail_of(child.stderr.take());
    let mut in_time = true;
    let mut deadline = Instant::now() + limit;
    while !has_ended(&mut child)? {
        if Instant::now() >= deadline {
            in_time = false;
            break;
        }
        match lines.recv_timeout(TICK) {
            Ok(text) => {
                if line(&text) {
                    deadline = Instant::now() + limit;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // It has closed its output and is about to end.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
    }
    // The child has not been waited for, so its number is still its own, and so is the group's.
    kill_group(&mut child);
    let status = reap(&mut child)?;
    // With the whole group gone the pipes close; the limit is for what escaped into a group of its own.
    let drained = Instant::now() + Duration::from_secs(1);
    while let Ok(text) = lines.recv_timeout(drained.saturating_duration_since(Instant::now())) {
        line(&text);
    }
    let stuck = status.is_none().then(|| child.id());
    let stderr = if stuck.is_none() && stderr.is_finished() { join(stderr) } else { wait_briefly(stderr) };
    Ok(Ended { status: status.filter(|_| in_time), stuck, stderr })
}

/// Ends this process when its parent has: for the first thing a child does. Its standard input must be a pipe from
/// [`supervise`].
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) {}
        std::process::exit(2);
    });
}

fn lines_of(stdout: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(stdout) = stdout else { return };
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(1..)) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    receiver
}

fn tail_of(stderr: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut tail = Vec::new();
        let mut buffer = [0; 4096];
        let Some(mut stderr) = stderr else { return String::new() };
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            tail.extend_from_slice(&buffer[..count]);
            if tail.len() > 2 * STDERR_KEPT {
                tail.drain(..tail.len() - STDERR_KEPT);
            }
        }
        String::from_utf8_lossy(&tail).trim().to_owned()
    })
}

fn join(stderr: JoinHandle<String>) -> String {
    stderr.join().unwrap_or_default()
}

fn wait_briefly(stderr: JoinHandle<String>) -> String {
    for _ in 0..50 {
        if stderr.is_finished() {
            return join(stderr);
        }
        std::thread::sleep(TICK);
    }
    String::new()
}

/// Whether the child has ended, without waiting for it: until then its process number cannot be given to another.
#[cfg(unix)]
fn has_ended(child: &mut Child) -> io::Result<bool> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(pid), options)?.is_some())
}

#[cfg(not(unix))]
fn has_ended(child: &mut Child) -> io::Result<bool> {
    Ok(child.try_wait()?.is_some())
}

#[cfg(unix)]
fn kill_group(child: &mut Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Fails only if nobody is left in the group.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

#[cfg(not(unix))]
fn kill_group(child: &mut Child) {
    // Fails only if it has ended.
    let _ = child.kill();
}

fn reap(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + REAP;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(TICK);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn alive(pid: &str) -> bool {
        // A zombie whose new parent has not looked yet is dead.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        state.is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
    }

    #[test]
    fn output_status_and_errors_come_back() {
        let mut lines = Vec::new();
        let ended = supervise(shell("echo one; echo two; echo bad >&2; exit 7"), Duration::from_secs(20), |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        assert_eq!(lines, ["one", "two"]);
        assert_eq!(ended.status.unwrap().code(), Some(7));
        assert_eq!(ended.stderr, "bad");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_hanging_child_and_its_children_are_killed() {
        let mut lines = Vec::new();
        let begin = Instant::now();
        let ended = supervise(shell("sleep 300 & echo $!; wait"), Duration::from_millis(300), |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        assert!(ended.status.is_none() && ended.stuck.is_none());
        assert!(begin.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!alive(&lines[0]), "the grandchild {} survived", lines[0]);
    }

    #[test]
    fn only_progress_puts_off_the_end() {
        let script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done";
        let limit = Duration::from_secs(1);
        assert!(supervise(shell(script), limit, |_| true).unwrap().status.is_some());
        assert!(supervise(shell(script), limit, |_| false).unwrap().status.is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_a_child_leaves_behind_is_killed() {
        let mut lines = Vec::new();
        let ended = supervise(shell("sleep 300 & echo $!; exit 0"), Duration::from_secs(20), |line| {
            lines.push(line.to_owned());
            true
        })
        .unwrap();
        assert!(ended.status.unwrap().success());
        std::thread::sleep(Duration::from_millis(100));
        assert!(!alive(&lines[0]), "the grandchild {} survived", lines[0]);
    }
}

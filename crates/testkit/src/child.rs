//! Child processes that never outlive the process that started them.
//!
//! The kernel's parent-death signal is tied to the *thread* that forked, so one thread that lives as long as the process
//! starts all children, and `setpriv` (util-linux) asks for the signal between fork and exec, which needs no `unsafe`.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

type Job = (Command, SyncSender<std::io::Result<std::process::Child>>);

/// One running child: killed and reaped when dropped.
pub(crate) struct Child {
    process: Mutex<std::process::Child>,
    pid: u32,
}

impl Child {
    /// Starts `program` with `args`; both of its outputs go to `output`.
    fn spawn(program: &Path, args: &[String], output: std::fs::File) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in a terminal is for the parent, which ends its children in its own order.
            .process_group(0);
        let (reply, answer) = sync_channel(1);
        spawner()?.send((command, reply)).map_err(|_| anyhow!("the spawning thread is gone"))?;
        let process = answer
            .recv()
            .context("the spawning thread is gone")?
            .with_context(|| format!("starting {} through setpriv (util-linux)", program.display()))?;
        Ok(Self { pid: process.id(), process: Mutex::new(process) })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // The lock keeps the child unreaped, and so its pid its own, while the signal is sent.
        let mut process = self.process.lock();
        if let Some(status) = process.try_wait()? {
            return Err(anyhow!("process {} has ended already ({status})", self.pid));
        }
        let pid = Pid::from_raw(i32::try_from(self.pid)?).ok_or_else(|| anyhow!("pid 0"))?;
        kill_process(pid, signal).with_context(|| format!("signal to process {}", self.pid))
    }

    /// How it ended, if it has.
    pub(crate) fn exit_status(&self) -> Result<Option<ExitStatus>> {
        Ok(self.process.lock().try_wait()?)
    }

    /// Kills with SIGKILL and reaps. Also ends a stopped process.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The place of a server's process, which comes and goes.
#[derive(Default)]
pub(crate) struct Process(Mutex<Option<Arc<Child>>>);

impl Process {
    /// Starts it in this place.
    pub(crate) fn start(&self, program: &Path, args: &[String], output: std::fs::File) -> Result<Arc<Child>> {
        let child = Arc::new(Child::spawn(program, args, output)?);
        *self.0.lock() = Some(Arc::clone(&child));
        Ok(child)
    }

    pub(crate) fn child(&self) -> Result<Arc<Child>> {
        self.0.lock().clone().context("it is not running")
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.child()?.signal(signal)
    }

    /// Kills with SIGKILL and waits until it is gone, if it is there.
    pub(crate) fn kill(&self) {
        let child = self.0.lock().take();
        if let Some(child) = child {
            child.kill();
        }
    }
}

fn spawner() -> Result<&'static SyncSender<Job>> {
    static SPAWNER: OnceLock<SyncSender<Job>> = OnceLock::new();
    if let Some(sender) = SPAWNER.get() {
        return Ok(sender);
    }
    let (sender, jobs) = sync_channel(16);
    std::thread::Builder::new().name("spawner".into()).spawn(move || run_spawner(&jobs))?;
    Ok(SPAWNER.get_or_init(|| sender))
}

fn run_spawner(jobs: &Receiver<Job>) {
    while let Ok((mut command, reply)) = jobs.recv() {
        let _ = reply.send(command.spawn());
    }
}

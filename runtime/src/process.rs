//! Activities that run programs of the operating system: with arguments and input, with bounded output, and killed when their
//! result is not waited for any more. This is the feature `process`, which is off by default.

use std::fmt;
use std::process::Stdio;

use millrun_workflow::TypedError;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How much of each output is kept by default.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// A program to be run, with its arguments and its input. No shell interprets them.
///
/// It is a plain value: a workflow decides on it, an activity runs it.
///
/// ```
/// use millrun::process::{Process, ProcessError, ProcessOutput};
/// use millrun::{Activity, ActivityContext, Runtime, Workflow, WorkflowContext, WorkflowError};
///
/// const RUN: Activity<Process, ProcessOutput, ProcessError> = Activity::named("run");
/// const SHOUT: Workflow<String, String> = Workflow::named("shout");
///
/// async fn shout(cx: WorkflowContext, text: String) -> Result<String, WorkflowError> {
///     let output = cx.call(RUN, Process::new("tr").args(["a-z", "A-Z"]).stdin(text)).await?;
///     Ok(String::from_utf8(output.stdout)?)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Runtime::volatile().register(SHOUT, shout);
/// let runtime = builder.register(RUN, |_cx: ActivityContext, process: Process| process.run()).start().await?;
/// assert_eq!(runtime.start(SHOUT, "s", "hello".into()).await?.result().await?, "HELLO");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    program: String,
    args: Vec<String>,
    #[serde(with = "serde_bytes")]
    stdin: Vec<u8>,
    output_bytes_max: usize,
}

/// The output of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessOutput {
    /// Its standard output, as far as it is kept.
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    /// Its standard error, as far as it is kept.
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// Bytes of both that were not kept.
    pub dropped_bytes: u64,
}

/// Why a program returned no output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ProcessError {
    /// It could not be started: it does not exist, say.
    NotStarted {
        /// The operating system's message.
        message: String,
    },
    /// It ended with a code other than zero; `None` if a signal ended it. Retryable.
    Failed {
        /// The code.
        code: Option<i32>,
        /// Its output.
        output: ProcessOutput,
    },
    /// Its output could not be read to the end. Retryable.
    Io {
        /// The operating system's message.
        message: String,
    },
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { message } => write!(f, "the program could not be started: {message}"),
            Self::Failed { code, output } => {
                match code {
                    Some(code) => write!(f, "the program ended with code {code}")?,
                    None => f.write_str("the program was ended by a signal")?,
                }
                let said = String::from_utf8_lossy(&output.stderr);
                match said.lines().rfind(|line| !line.trim().is_empty()) {
                    Some(line) => write!(f, ": {line}"),
                    None => Ok(()),
                }
            }
            Self::Io { message } => write!(f, "the program's output broke off: {message}"),
        }
    }
}

impl std::error::Error for ProcessError {}

impl TypedError for ProcessError {
    fn is_retryable(&self) -> bool {
        !matches!(self, Self::NotStarted { .. })
    }
}

impl Process {
    /// A program, found as the operating system finds programs, without arguments and input.
    #[must_use]
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            stdin: Vec::new(),
            output_bytes_max: OUTPUT_BYTES_MAX,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets what it reads from its standard input; nothing by default.
    #[must_use]
    pub fn stdin(mut self, stdin: impl Into<Vec<u8>>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Sets how many bytes of each output are kept, 256 KiB by default; the rest is read and dropped,
    /// so that the program does not hang. The result must fit a payload.
    #[must_use]
    pub fn output_bytes_max(mut self, bytes: usize) -> Self {
        self.output_bytes_max = bytes;
        self
    }

    /// Runs it until it has ended and its outputs are closed: a background process that it leaves behind, and that still has
    /// them open, is waited for.
    ///
    /// # Errors
    /// See [`ProcessError`]; a code other than zero is an error.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its IO driver, which `enable_all` and `#[tokio::main]` make; the attempt then fails
    /// with that panic.
    ///
    /// # Cancel safety
    /// Dropping the future kills the program, and so does a timeout or a cancel of the activity. On Unix it is the leader of
    /// a process group of its own, and the whole group is killed: everything that it has started, unless that has left the
    /// group. So a Ctrl-C at the terminal only reaches your own program. On other systems, processes that it has started are
    /// not killed. Nothing is killed either if your own process dies abruptly, by `SIGKILL` or a crash: when the store is
    /// opened again the next attempt may run beside what is left of the last.
    pub async fn run(self) -> Result<ProcessOutput, ProcessError> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut group = Group(command.spawn().map_err(|error| ProcessError::NotStarted {
            message: format!("{}: {error}", self.program),
        })?);
        let child = &mut group.0;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async {
            if let Some(mut stdin) = stdin {
                // It is no error if a program does not read its input to the end.
                drop(stdin.write_all(&self.stdin).await);
            }
            Ok(())
        };
        let bytes_max = self.output_bytes_max;
        let read = futures_util::future::try_join3(write, keep(stdout, bytes_max), keep(stderr, bytes_max));
        let io = |error: std::io::Error| ProcessError::Io {
            message: error.to_string(),
        };
        let ((), (stdout, more_stdout), (stderr, more_stderr)) = read.await.map_err(io)?;
        let status = child.wait().await.map_err(io)?;
        let output = ProcessOutput {
            stdout,
            stderr,
            dropped_bytes: more_stdout + more_stderr,
        };
        if status.success() {
            Ok(output)
        } else {
            let code = status.code();
            Err(ProcessError::Failed { code, output })
        }
    }
}

/// A program and, on Unix, the process group it heads: killed together unless it has ended.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Until it has been waited for, no other process can have its number.
        #[cfg(unix)]
        if let Some(group) = self.0.id()
            && let Some(group) = i32::try_from(group).ok().and_then(rustix::process::Pid::from_raw)
        {
            // All may have ended by themselves.
            let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Reads to the end; what is kept, and how many bytes were not.
async fn keep(
    output: Option<impl AsyncRead + Unpin>,
    bytes_max: usize,
) -> Result<(Vec<u8>, u64), std::io::Error> {
    let (mut kept, mut dropped) = (Vec::new(), 0);
    let Some(mut output) = output else {
        return Ok((kept, dropped));
    };
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = output.read(&mut buffer).await?;
        if read == 0 {
            return Ok((kept, dropped));
        }
        let room = bytes_max.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(&buffer[..room]);
        dropped += (read - room) as u64;
    }
}

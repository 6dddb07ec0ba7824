//! One worker process, from its start to its end.
//!
//! ```text
//!   callers ──► lines ──► thread ──► standard input ─► worker
//!   callers ◄── answers ── thread ◄─ standard output ──┘   everything read is entered in the ledger first
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;

use crate::ledger::{RequestIndex, SharedBook, Tick};
use crate::wire::{Answer, Report, Request};

/// How a worker is started.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) shards_len: usize,
    pub(crate) hot_len_max: usize,
    pub(crate) restarts_max: u32,
    pub(crate) seed: u64,
    pub(crate) clock_ms: Option<i64>,
    pub(crate) has_own_disk: bool,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Where the answer goes in the ledger.
    pub(crate) place: Option<(String, RequestIndex)>,
    pub(crate) reply: oneshot::Sender<Answer>,
    pub(crate) fence: Option<Tick>,
}

/// A worker process.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) number: u64,
    child: Mutex<Child>,
    /// Requests on their way: at most one for each caller of the load.
    lines: mpsc::Sender<Vec<u8>>,
    /// `None` once the process has ended.
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
    is_killed: AtomicBool,
    /// It has opened its store.
    is_open: AtomicBool,
}

/// How a process ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: io::Result<ExitStatus>,
    pub(crate) was_killed: bool,
    /// That the runtime stopped by itself, and why.
    pub(crate) stopped: Option<String>,
    /// A line that is no report, where no kill explains it.
    pub(crate) garbled: Option<String>,
    /// What it told besides answers.
    pub(crate) told: Told,
}

/// What a process tells besides answers.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// How often it opened a store that had not been closed properly.
    pub(crate) repairs: u64,
    /// How often each part failed with which message.
    pub(crate) failures: BTreeMap<(String, String), u64>,
    stopped: Option<String>,
}

/// Messages of failed parts that are kept apart; further ones count together.
const FAILURES_LEN_MAX: usize = 1_000;

impl Told {
    fn failed(&mut self, part: String, message: String) {
        let key = (part, message);
        let is_kept = self.failures.len() < FAILURES_LEN_MAX || self.failures.contains_key(&key);
        let key = if is_kept {
            key
        } else {
            (key.0, "one of many messages".to_owned())
        };
        *self.failures.entry(key).or_default() += 1;
    }
}

impl Life {
    /// Starts a process on this store. What it says on its standard error goes to a file beside the store.
    ///
    /// # Errors
    /// When the system gives no process.
    pub(crate) fn start(
        number: u64,
        store: &Path,
        recipe: &Recipe,
        ledger: Arc<SharedBook>,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<Ended>)> {
        let errors = File::options()
            .create(true)
            .append(true)
            .open(store.with_file_name("worker.stderr"))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg("--store").arg(store);
        command.args(["--life", &number.to_string(), "--seed", &recipe.seed.to_string()]);
        command.args(["--shards-len", &recipe.shards_len.to_string()]);
        command.args(["--hot-len-max", &recipe.hot_len_max.to_string()]);
        command.args(["--restarts-max", &recipe.restarts_max.to_string()]);
        if let Some(clock_ms) = recipe.clock_ms {
            command.args(["--clock-ms", &clock_ms.to_string()]);
        }
        if recipe.has_own_disk {
            command.arg("--own-disk");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()?;
        let input = child.stdin.take().expect("its standard input was asked for");
        let output = child.stdout.take().expect("its standard output was asked for");
        let (lines, to_write) = mpsc::channel();
        let life = Arc::new(Self {
            number,
            child: Mutex::new(child),
            lines,
            waiting: Mutex::new(Some(HashMap::new())),
            is_killed: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
        });
        std::thread::spawn(move || write(input, &to_write));
        let (told, ended) = oneshot::channel();
        let reading = Arc::clone(&life);
        std::thread::spawn(move || {
            let end = reading.read(output, &ledger);
            // Nobody waits any more if the round is being given up.
            drop(told.send(end));
        });
        Ok((life, ended))
    }

    /// Registers a request; `false` if the process has ended.
    pub(crate) fn expect(&self, number: u64, waiting: Waiting) -> bool {
        let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *all {
            Some(all) => all.insert(number, waiting).is_none(),
            None => false,
        }
    }

    /// Sends a request.
    pub(crate) fn send(&self, request: &Request) {
        let mut line = serde_json::to_vec(request).expect("requests are plain data");
        line.push(b'\n');
        // If the process has ended, its end answers the request.
        drop(self.lines.send(line));
    }

    /// Whether the process has its store open, or had.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }

    /// SIGKILL: the process gets no chance to do anything more.
    pub(crate) fn kill(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has ended cannot be killed, and need not be.
        drop(child.kill());
    }

    fn read(&self, output: ChildStdout, ledger: &SharedBook) -> Ended {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        let (mut told, mut garbled) = (Told::default(), None);
        while output.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            match serde_json::from_slice(&line) {
                Ok(report) => self.take(report, ledger, &mut told),
                // The last line of a process that was killed may be torn.
                Err(_) if self.is_killed.load(Ordering::SeqCst) && !line.ends_with(b"\n") => {}
                Err(error) => garbled = Some(format!("{error}: {}", String::from_utf8_lossy(&line))),
            }
            line.clear();
        }
        let status = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
        let left = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        for waiting in left.into_iter().flat_map(HashMap::into_values) {
            if let Some((id, place)) = &waiting.place {
                ledger.book().answered(id, *place, &Answer::Lost);
            }
            drop(waiting.reply.send(Answer::Lost));
        }
        Ended {
            status,
            was_killed: self.is_killed.load(Ordering::SeqCst),
            stopped: told.stopped.take(),
            garbled,
            told,
        }
    }

    fn take(&self, report: Report, ledger: &SharedBook, told: &mut Told) {
        match report {
            Report::Answer { number, answer } => {
                let mut all = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = all.as_mut().and_then(|all| all.remove(&number));
                drop(all);
                let Some(waiting) = waiting else { return };
                if let Some((id, place)) = &waiting.place {
                    ledger.book().answered(id, *place, &answer);
                }
                if let (Some(asked), Answer::Done) = (waiting.fence, &answer) {
                    ledger.book().fenced(self.number, asked);
                }
                // The caller may have given up.
                drop(waiting.reply.send(answer));
            }
            Report::Ran(ran) => ledger.book().ran(self.number, ran),
            Report::Promised { id, token } => ledger.book().promised(&id, token),
            Report::Heard { value } => ledger.book().heard(self.number, value),
            Report::Letter { sequence, step } => ledger.book().letter(sequence, step),
            Report::Reply { sequence, step } => ledger.book().reply(sequence, step),
            Report::Stopped { cause } => told.stopped = Some(cause),
            Report::Open { is_repaired, .. } => {
                self.is_open.store(true, Ordering::SeqCst);
                told.repairs += u64::from(is_repaired);
            }
            Report::PartFailed { part, message } => told.failed(part, message),
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes what is waiting, in as few writes as possible.
fn write(mut input: ChildStdin, lines: &mpsc::Receiver<Vec<u8>>) {
    const BYTES_MAX: usize = 64 << 10;
    while let Ok(mut bytes) = lines.recv() {
        while bytes.len() < BYTES_MAX
            && let Ok(more) = lines.try_recv()
        {
            bytes.extend_from_slice(&more);
        }
        if input.write_all(&bytes).is_err() {
            return;
        }
    }
}

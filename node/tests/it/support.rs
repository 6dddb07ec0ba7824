//! Running the program in a directory of its own.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A directory in which the program runs.
pub(crate) struct Folder(TempDir, TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: impl AsRef<Path>, content: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// A file full of zeros that takes a while to read and no room on the disk.
    pub(crate) fn write_zeros(&self, name: impl AsRef<Path>, bytes: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().set_len(bytes).unwrap();
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrun"));
        command
            .current_dir(self.0.path())
            .args(arguments)
            .env("TMPDIR", self.temporary())
            .stdin(Stdio::null());
        command
    }

    /// The directory in which the program makes its temporary ones: out of the way of [`names`](Self::names).
    pub(crate) fn temporary(&self) -> &Path {
        self.1.path()
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.command(arguments).output().unwrap().into()
    }

    /// Runs the program to its end, with these variables in its environment.
    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        command.output().unwrap().into()
    }

    /// Runs the program to its end, with its standard output going there.
    pub(crate) fn run_onto(&self, arguments: &[&str], out: Stdio) -> Ended {
        let mut command = self.command(arguments);
        let child = command.stdout(out).stderr(Stdio::piped()).spawn();
        // Its ends of the pipes go with the command.
        drop(command);
        child.unwrap().wait_with_output().unwrap().into()
    }

    /// Runs the program to its end, with its standard error going there.
    pub(crate) fn run_with_words_for(&self, arguments: &[&str], words: Stdio) -> Ended {
        let mut command = self.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(words).spawn();
        child.unwrap().wait_with_output().unwrap().into()
    }

    /// Runs the program to its end, with this on its standard input.
    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap().into()
    }

    /// Starts the program.
    pub(crate) fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Started(child.unwrap())
    }

    /// Starts the program and waits until it has written a line with `sign` in it, on either of
    /// its outputs.
    pub(crate) fn start_until(&self, arguments: &[&str], sign: &str) -> Running {
        self.start_with(arguments, &[], sign).0
    }

    /// The same, with these variables in its environment; also gives the lines up to the one with the sign.
    pub(crate) fn start_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
        sign: &str,
    ) -> (Running, Vec<String>) {
        let (lines, writer) = std::io::pipe().unwrap();
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let running = Running(command.spawn().unwrap());
        // Ours go with the command, so that the end of the program is the end of the lines.
        drop(command);
        let mut heard = Vec::new();
        let mut lines = BufReader::new(lines).lines();
        while let Some(line) = lines.next() {
            heard.push(line.unwrap());
            if heard.last().is_some_and(|line| line.contains(sign)) {
                // The output must be read on, or the program would wait for room or fail.
                std::thread::spawn(move || lines.count());
                return (running, heard);
            }
        }
        panic!("the program ended without {sign:?}: {heard:#?}");
    }
}

/// A program that ends by itself.
pub(crate) struct Started(Child);

impl Started {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub(crate) fn ended(self) -> Ended {
        self.0.wait_with_output().unwrap().into()
    }
}

/// A program that runs; it is killed when this is dropped.
pub(crate) struct Running(Child);

impl Running {
    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// SIGINT, as Ctrl-C sends it; gives the exit code.
    pub(crate) fn interrupt(self) -> Option<i32> {
        self.end_by("-INT")
    }

    /// SIGTERM, as a supervisor sends it; gives the exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.end_by("-TERM")
    }

    fn end_by(mut self, signal: &str) -> Option<i32> {
        self.send(signal);
        self.0.wait().unwrap().code()
    }

    /// Sends a signal, and does not wait for what it does.
    pub(crate) fn send(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for the end; gives the exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when the program has ended already, which is as good.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    /// Fails the test unless the program ended with this code.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// Whether GNU `sha256sum` accepts a manifest, seen from this directory; `None` without it.
pub(crate) fn sha256sum_accepts(folder: &Folder, manifest: &str) -> Option<bool> {
    let version = Command::new("sha256sum").arg("--version").output().ok()?;
    if !String::from_utf8_lossy(&version.stdout).contains("GNU coreutils") {
        return None;
    }
    let arguments = ["--check", "--strict", "--quiet", manifest].map(OsStr::new);
    Some(
        Command::new("sha256sum")
            .current_dir(folder.path(""))
            .args(arguments)
            .status()
            .unwrap()
            .success(),
    )
}

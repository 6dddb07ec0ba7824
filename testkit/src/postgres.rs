//! PostgreSQL servers for tests and benchmarks: each in its own folder, and ended with the process that has started it.
//!
//! ```text
//!   PostgresServer ──► a shell ──► postgres      the shell's input ends with this process, however that ends:
//!                                                then it stops the server
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use tempfile::TempDir;

/// The variable that names the folder of `initdb` and `postgres`, if they are not found otherwise.
const BIN_VARIABLE: &str = "MILLRUN_POSTGRES_BIN";
/// Where Debian puts what it installs.
const INSTALLED: &str = "/usr/lib/postgresql";
/// The server accepts every user from this machine, and standbys over its socket.
const HBA: &str = "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 trust\n";

/// The first argument is a folder to be removed at the end, if there is one.
const KEEPER: &str = r#"left=$1; shift; "$@" & server=$!; read -r _; kill -INT "$server"; wait "$server"
[ -z "$left" ] || rm -rf "$left""#;

/// A server, with checksums on and `fsync` as by default. Dropping it stops it, and removes its data.
///
/// Its programs are found in `PATH`, in `/usr/lib/postgresql` (the newest), or in the folder that the environment variable
/// `MILLRUN_POSTGRES_BIN` names. The data are in the system's folder for temporary files. If `root` starts the server, it
/// runs as the user `postgres`, which needs `setpriv`: PostgreSQL does not run as `root`.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use millrun_testkit::PostgresServer;
///
/// let mut server = PostgresServer::make()?;
/// server.start()?;
/// println!("a program opens {}", server.url("orders"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// It is never dropped; its keeper removes its folder.
    is_of_process: bool,
    /// A shell that stops the server when its input ends, as it does with this process.
    keeper: Option<Child>,
}

/// The folder of `initdb` and `postgres`.
fn bin() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(BIN_VARIABLE) {
        return Some(folder.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let installed = fs::read_dir(INSTALLED).into_iter().flatten().flatten();
    let mut installed: Vec<_> = installed.map(|version| version.path().join("bin")).collect();
    installed.sort();
    folders.extend(installed.into_iter().rev());
    let initdb = folders.into_iter().map(|folder| folder.join("initdb"));
    let initdb = initdb.filter(|initdb| initdb.is_file());
    // Only some of the programs may be linked into a folder of `PATH`.
    let initdb = initdb.filter_map(|initdb| initdb.canonicalize().ok()).next()?;
    initdb.parent().map(Path::to_path_buf)
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// A command as a user that PostgreSQL accepts.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
        .arg(program);
    command
}

/// Runs a command to its end.
fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    Err(io::Error::other(format!(
        "{command:?} failed: {said}{complained}"
    )))
}

impl PostgresServer {
    /// Whether PostgreSQL is installed.
    #[must_use]
    pub fn is_installed() -> bool {
        bin().is_some()
    }

    /// Makes the data of a server, which is not started yet.
    ///
    /// # Errors
    /// [`NotFound`](io::ErrorKind::NotFound) if PostgreSQL is not installed; the errors of `initdb`; errors of the disk.
    pub fn make() -> io::Result<Self> {
        let Some(bin) = bin() else {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "there is no PostgreSQL (initdb) in PATH or {INSTALLED}; install it, or name its folder in {BIN_VARIABLE}"
                ),
            ));
        };
        let folder = TempDir::with_prefix("millrun-postgres-")?;
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()))?;
        }
        let data = folder.path().join("data");
        let mut initdb = as_user(&bin.join("initdb"));
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--data-checksums",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
        ]);
        run(initdb.arg("--pgdata").arg(&data).current_dir("/"))?;
        fs::write(data.join("pg_hba.conf"), HBA)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self {
            folder,
            bin,
            port,
            settings: Vec::new(),
            is_of_process: false,
            keeper: None,
        })
    }

    /// Keeps the server and its data until this process ends, without a drop: for a server in a `static`.
    #[must_use]
    pub fn for_this_process(mut self) -> Self {
        self.is_of_process = true;
        self
    }

    /// Settings of the next start, as `name=value`.
    pub fn set(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    }

    /// Starts the server, and returns when it takes connections.
    ///
    /// # Errors
    /// What the server has logged, if it ends before.
    pub fn start(&mut self) -> io::Result<()> {
        let mut command = as_user(Path::new("sh"));
        let left = match self.is_of_process {
            true => self.folder.path(),
            false => Path::new(""),
        };
        command
            .args(["-c", KEEPER, "keeper"])
            .arg(left)
            .arg(self.bin.join("postgres"))
            .arg("-D")
            .arg(self.data());
        let fixed = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            format!("unix_socket_directories={}", self.folder.path().display()),
            "shared_buffers=32MB".to_owned(),
            "max_connections=60".to_owned(),
        ];
        for setting in fixed.iter().chain(&self.settings) {
            command.arg("-c").arg(setting);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut keeper = command.current_dir("/").spawn()?;
        let log = keeper.stderr.take();
        self.keeper = Some(keeper);
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let mut told = String::new();
            let lines = log.map(BufReader::new).into_iter().flat_map(BufRead::lines);
            for line in lines.map_while(Result::ok) {
                told.push_str(&line);
                told.push('\n');
                if line.contains("ready to accept") {
                    ready.send(Ok(())).ok();
                    told.clear();
                }
            }
            ready.send(Err(told)).ok();
        });
        let started = is_ready.recv().map_err(io::Error::other)?;
        started.map_err(|log| io::Error::other(format!("the server does not start: {log}")))
    }

    /// Makes this server a standby of another one that runs: it gets a copy of the data of that server, and follows it from its next
    /// start on. It must be stopped; the data that it had are removed. Files that were [put](Self::put) into the data of
    /// the other one are copied as well.
    ///
    /// A standby takes no writes until it is [promoted](Self::promote).
    ///
    /// # Errors
    /// The errors of `pg_basebackup`, which needs an entry `local replication` in the other one's `pg_hba.conf`; errors of the disk.
    pub fn follow(&self, primary: &Self) -> io::Result<()> {
        match fs::remove_dir_all(self.data()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut copy = as_user(&self.bin.join("pg_basebackup"));
        copy.args([
            "--username=postgres",
            "--write-recovery-conf",
            "--wal-method=stream",
        ])
        .args(["--checkpoint=fast", "--no-sync", "--host"])
        .arg(primary.folder())
        .arg(format!("--port={}", primary.port))
        .arg("--pgdata")
        .arg(self.data());
        run(copy.current_dir("/"))
    }

    /// Makes a standby a server that takes writes, and returns when it does.
    ///
    /// # Errors
    /// When it does not run, or is no standby.
    pub fn promote(&self) -> io::Result<()> {
        let mut promote = as_user(&self.bin.join("pg_ctl"));
        promote.args(["promote", "--pgdata"]).arg(self.data());
        run(promote.current_dir("/"))
    }

    /// Kills the server as a power cut would, except that the system still writes its caches.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self) -> io::Result<()> {
        let mut stop = as_user(&self.bin.join("pg_ctl"));
        stop.args(["stop", "--mode=immediate", "--pgdata"])
            .arg(self.data());
        run(stop.current_dir("/"))?;
        self.stop()
    }

    /// Stops the server properly; it may be started again.
    ///
    /// # Errors
    /// Errors of waiting for its end.
    pub fn stop(&mut self) -> io::Result<()> {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            keeper.wait()?;
        }
        Ok(())
    }

    /// Writes a file into the folder of the data, as a user that the server accepts.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.data().join(name);
        fs::write(&path, text)?;
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&path))?;
        }
        run(Command::new("chmod").arg("600").arg(&path))
    }

    /// The port on which it listens, at 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder in which its socket is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of its data, in the folder of its socket.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The URL of a schema, over the socket of the server, as its administrator.
    #[must_use]
    pub fn url(&self, schema: &str) -> String {
        let (folder, port) = (self.folder.path().display(), self.port);
        format!("postgres://postgres@/postgres?host={folder}&port={port}&schema={schema}")
    }

    /// As [`url`](Self::url), but with another host to be tried behind this one.
    #[must_use]
    pub fn url_of_both(&self, other: &Self, schema: &str) -> String {
        let [folder, other_folder] = [self, other].map(|server| server.folder.path().display());
        let (port, other_port) = (self.port, other.port);
        format!(
            "postgres://postgres@/postgres?host={folder},{other_folder}&port={port},{other_port}&schema={schema}"
        )
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Its end was waited for, or another process has started it.
        self.stop().ok();
    }
}

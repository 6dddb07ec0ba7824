//! Servers of PostgreSQL for the tests: made in a folder of their own, and ended with the process that has started them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use tempfile::TempDir;
use tokio_postgres::NoTls;

/// A server. Dropping it stops it.
pub(crate) struct TestServer {
    folder: TempDir,
    bin: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// It is never dropped, and its folder goes with its keeper.
    is_shared: bool,
    /// A shell that stops the server when its input ends, as it does with this process.
    keeper: Option<Child>,
}

/// What may log in how: by a password over TCP if the user is `locked`.
const HBA: &str =
    "local all all trust\nhost all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";

/// The first argument is a folder to be removed at the end, if there is one.
const KEEPER: &str = r#"left=$1; shift; "$@" & server=$!; read -r _; kill -INT "$server"; wait "$server"
[ -z "$left" ] || rm -rf "$left""#;

/// The folder of `initdb` and `postgres`.
fn bin() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("MILLRUN_POSTGRES_BIN") {
        return Some(folder.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let installed = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut installed: Vec<_> = installed.map(|version| version.path().join("bin")).collect();
    installed.sort();
    folders.extend(installed.into_iter().rev());
    folders.into_iter().find(|folder| folder.join("initdb").is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

/// A command as a user whom PostgreSQL accepts.
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

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

impl TestServer {
    /// A server of its own for a test; `None` if there is no PostgreSQL.
    pub(crate) fn own() -> Option<Self> {
        Self::made(false)
    }

    fn made(is_shared: bool) -> Option<Self> {
        let Some(bin) = bin() else {
            let required = std::env::var("MILLRUN_REQUIRE").unwrap_or_default();
            assert!(
                !required.contains("postgres"),
                "MILLRUN_REQUIRE asks for postgres"
            );
            eprintln!("SKIPPED: there is no PostgreSQL (initdb), so the journal on it was not tested");
            return None;
        };
        let folder = TempDir::with_prefix("millrun-postgres-").unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        let data = folder.path().join("data");
        let mut initdb = as_user(&bin.join("initdb"));
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--data-checksums",
            "--no-sync",
            "--encoding=UTF8",
        ]);
        run(initdb
            .arg("--locale=C")
            .arg("--pgdata")
            .arg(&data)
            .current_dir("/"));
        fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut server = Self {
            folder,
            bin,
            port,
            settings: Vec::new(),
            is_shared,
            keeper: None,
        };
        server.start();
        Some(server)
    }

    /// The server that most tests share; each has a schema of its own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
        let server = SERVER.get_or_init(|| Self::made(true));
        server.as_ref()
    }

    /// Starts the server, and returns when it takes connections.
    pub(crate) fn start(&mut self) {
        let mut command = as_user(Path::new("sh"));
        let left = if self.is_shared {
            self.folder.path()
        } else {
            Path::new("")
        };
        command
            .args(["-c", KEEPER, "keeper"])
            .arg(left)
            .arg(self.bin.join("postgres"));
        command.arg("-D").arg(self.folder.path().join("data"));
        let port = self.port;
        let fixed = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
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
        let mut keeper = command.current_dir("/").spawn().unwrap();
        let log = BufReader::new(keeper.stderr.take().unwrap());
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let mut told = String::new();
            for line in log.lines().map_while(Result::ok) {
                told.push_str(&line);
                told.push('\n');
                if line.contains("ready to accept") {
                    ready.send(Ok(())).ok();
                }
            }
            ready.send(Err(told)).ok();
        });
        is_ready
            .recv()
            .unwrap()
            .unwrap_or_else(|log| panic!("the server does not start: {log}"));
        self.keeper = Some(keeper);
    }

    /// Kills the server as a power cut would, but for what the system still writes.
    pub(crate) fn kill(&mut self) {
        let mut stop = as_user(&self.bin.join("pg_ctl"));
        stop.args(["stop", "--mode=immediate", "--pgdata"]);
        run(stop.arg(self.folder.path().join("data")).current_dir("/"));
        self.let_go();
    }

    /// Stops the server in good order.
    pub(crate) fn stop(&mut self) {
        self.let_go();
    }

    /// Settings of the next start.
    pub(crate) fn set(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    }

    /// Writes a file into the folder of the data, as a user whom the server accepts.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        fs::write(&path, text).unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&path));
        }
        run(Command::new("chmod").arg("600").arg(&path));
    }

    /// Keeps a copy of the data of a server that is stopped, or puts it back.
    pub(crate) fn copy_data(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder.path().join(name));
        fs::remove_dir_all(&to).ok();
        run(Command::new("cp").arg("-a").arg(from).arg(to));
    }

    fn let_go(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            keeper.wait().unwrap();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The URL of a schema, over the socket of the server.
    pub(crate) fn url(&self, schema: &str) -> String {
        let (folder, port) = (self.folder.path().display(), self.port);
        format!("postgres://postgres@/postgres?host={folder}&port={port}&schema={schema}")
    }

    /// A schema that no other test has.
    pub(crate) fn schema(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("s{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// The way in for the administrator.
    pub(crate) fn administrator(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder.path()).port(self.port);
        config.user("postgres").dbname("postgres");
        config
    }

    /// Runs statements as the administrator; gives the values of the rows of the last one that has any.
    pub(crate) fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (client, connection) = self.administrator().connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            let messages = client
                .simple_query(sql)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let rows = messages.iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
                }
                _ => None,
            });
            rows.collect()
        })
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.let_go();
    }
}

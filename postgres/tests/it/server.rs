//! Servers of PostgreSQL for the tests.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use millrun_testkit::PostgresServer;
use tokio_postgres::NoTls;

/// A server. Dropping it stops it.
pub(crate) struct TestServer(PostgresServer);

/// What may log in how: by a password over TCP if the user is `locked`.
const HBA: &str = "local all all trust\nlocal replication all trust\nhost all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";

impl TestServer {
    /// A server of its own for a test; `None` if there is no PostgreSQL.
    pub(crate) fn own() -> Option<Self> {
        Self::made(|server| server)
    }

    fn made(as_wanted: impl FnOnce(PostgresServer) -> PostgresServer) -> Option<Self> {
        if !PostgresServer::is_installed() {
            let required = std::env::var("MILLRUN_REQUIRE").unwrap_or_default();
            assert!(
                !required.contains("postgres"),
                "MILLRUN_REQUIRE asks for postgres"
            );
            eprintln!("SKIPPED: there is no PostgreSQL (initdb), so the journal on it was not tested");
            return None;
        }
        let mut server = as_wanted(PostgresServer::make().unwrap());
        server.put("pg_hba.conf", HBA).unwrap();
        server.start().unwrap();
        Some(Self(server))
    }

    /// The server that most tests share; each has a schema of its own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
        let server = SERVER.get_or_init(|| Self::made(PostgresServer::for_this_process));
        server.as_ref()
    }

    /// A server that follows this one as its standby, and is started.
    pub(crate) fn standby(&self) -> Self {
        let mut standby = Self(PostgresServer::make().unwrap());
        standby.follow(self);
        standby
    }

    /// Makes this server, which is stopped, a standby of another one, and starts it.
    pub(crate) fn follow(&mut self, primary: &Self) {
        self.0.follow(&primary.0).unwrap();
        // It would try again after 5 s if the first attempt to follow comes too early.
        self.0.set(&["wal_retrieve_retry_interval=50ms"]);
        self.0.start().unwrap();
    }

    /// Makes a standby take writes, and returns when it does.
    pub(crate) fn promote(&self) {
        self.0.promote().unwrap();
    }

    /// Sets a setting of a server that runs, for now and later.
    pub(crate) fn alter(&self, setting: &str, value: &str) {
        self.sql(&format!("ALTER SYSTEM SET {setting} = '{value}'"));
        self.sql("SELECT pg_reload_conf()");
    }

    /// Starts the server, and returns when it takes connections.
    pub(crate) fn start(&mut self) {
        self.0.start().unwrap();
    }

    /// Kills the server as a power cut would, but for what the system still writes.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
    }

    /// Stops the server in good order.
    pub(crate) fn stop(&mut self) {
        self.0.stop().unwrap();
    }

    /// Writes a file into the folder of the data, as a user whom the server accepts.
    pub(crate) fn put(&self, name: &str, text: &str) {
        self.0.put(name, text).unwrap();
    }

    /// Keeps a copy of the data of a server that is stopped, or puts it back.
    pub(crate) fn copy_data(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.folder().join(name));
        fs::remove_dir_all(&to).ok();
        let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(copied.unwrap().success());
    }

    /// A schema that no other test has.
    pub(crate) fn schema(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("s{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// The way in for the administrator.
    pub(crate) fn administrator(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder()).port(self.port());
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

impl Deref for TestServer {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        &self.0
    }
}

impl DerefMut for TestServer {
    fn deref_mut(&mut self) -> &mut PostgresServer {
        &mut self.0
    }
}

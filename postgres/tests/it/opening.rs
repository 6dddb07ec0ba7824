//! Openings that are refused, each with an error that says what to do, and without a password.

use std::process::Command;
use std::time::Duration;

use millrun_persistence::contract::Author;
use millrun_persistence::{Durability, Journal, JournalConfig, Reads, StoreError};
use millrun_postgres::{PostgresConfig, PostgresJournal, PostgresOpenError};

use crate::AtUrl;
use crate::server::TestServer;

fn refused(url: &str) -> PostgresOpenError {
    let mut config = PostgresConfig::default();
    config.open_wait_max = Duration::ZERO;
    let error = PostgresJournal::open(url, config).expect_err(url);
    let told = format!("{error} {error:?}");
    assert!(!told.contains("s3cret"), "{told}");
    error
}

macro_rules! assert_refused {
    ($url:expr, $pattern:pat) => {
        let error = refused($url);
        assert!(matches!(error, $pattern), "{}: {error:?}", $url);
    };
}

#[test]
fn a_server_that_is_not_there_is_named_and_may_be_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = refused(&format!("postgres://app:s3cret@127.0.0.1:{port}/orders"));
    assert!(matches!(error, PostgresOpenError::NoServer { .. }), "{error:?}");
    assert!(error.is_retryable() && error.to_string().contains("127.0.0.1"));
}

#[test]
fn bounds_that_make_no_sense_are_refused_before_anything_is_asked() {
    let mut config = PostgresConfig::default();
    config.readers = 0;
    let error = PostgresJournal::open("postgres://app:s3cret@127.0.0.1:1/x", config).expect_err("no readers");
    let field = match error {
        PostgresOpenError::Config(StoreError::Config { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field, "readers");
}

#[test]
fn who_may_not_log_in_and_what_is_not_there_is_told() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    server.sql("CREATE ROLE locked LOGIN PASSWORD 'another'");
    let at = |user: &str, database: &str| format!("postgres://{user}@127.0.0.1:{}/{database}", server.port());
    assert_refused!(&at("locked:s3cret", "postgres"), PostgresOpenError::Login { .. });
    assert_refused!(&at("locked", "postgres"), PostgresOpenError::Login { .. });
    assert_refused!(&at("nobody:s3cret", "postgres"), PostgresOpenError::Login { .. });
    assert_refused!(
        &at("postgres:s3cret", "nowhere"),
        PostgresOpenError::NoDatabase { .. }
    );
    // The right password, and no right to create a schema.
    assert_refused!(
        &at("locked:another", "postgres"),
        PostgresOpenError::Grants { .. }
    );
    // A schema of its own is enough.
    let schema = server.schema();
    server.sql(&format!("CREATE SCHEMA {schema} AUTHORIZATION locked"));
    let url = format!("{}?schema={schema}", at("locked:another", "postgres"));
    let journal = AtUrl(url).open();
    assert!(!format!("{journal:?}").contains("another"));
    let mut author = Author::new(&journal, "a", 1);
    author.append(&AtUrl(String::new()), &journal, &[b"one"], true);
    author.assert_history(&journal);
    // Another user may not use it.
    server.sql("CREATE ROLE other LOGIN");
    let url = format!("{}?schema={schema}", at("other", "postgres"));
    assert_refused!(&url, PostgresOpenError::Grants { .. });
}

#[test]
fn what_is_not_a_store_of_this_format_is_left_as_it_is() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    server.sql(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.store (a int)"
    ));
    assert_refused!(&server.url(&schema), PostgresOpenError::Foreign { .. });
    let tables = server.sql(&format!(
        "SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"
    ));
    assert_eq!(tables.len(), 1);

    let schema = server.schema();
    drop(AtUrl(server.url(&schema)).open());
    server.sql(&format!("UPDATE {schema}.store SET millrun_format = 6"));
    let before = server.sql(&format!(
        "SELECT * FROM {schema}.store, {schema}.writer, {schema}.marker"
    ));
    let found = match refused(&server.url(&schema)) {
        PostgresOpenError::NewerFormat { found, supported, .. } => (found, supported),
        other => panic!("{other:?}"),
    };
    assert_eq!(found, (6, 5));
    let after = server.sql(&format!(
        "SELECT * FROM {schema}.store, {schema}.writer, {schema}.marker"
    ));
    assert_eq!(before, after);
    server.sql(&format!(
        "UPDATE {schema}.store SET millrun_format = 5; DELETE FROM {schema}.writer"
    ));
    assert_refused!(&server.url(&schema), PostgresOpenError::Corrupted { .. });
}

#[test]
fn two_openings_at_once_make_one_store_and_one_of_them_has_it() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    for _ in 0..4 {
        let url = server.url(&server.schema());
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut config = PostgresConfig::default();
                        config.open_wait_max = Duration::ZERO;
                        PostgresJournal::open(&url, config)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refused: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
        assert!(
            matches!(refused[..], [PostgresOpenError::AlreadyOpen { .. }]),
            "{refused:?}"
        );
    }
}

#[test]
fn a_server_that_takes_no_writes_or_syncs_none_is_refused() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let url = server.url("store");
    server
        .sql("CREATE ROLE reader LOGIN SUPERUSER; ALTER ROLE reader SET default_transaction_read_only = on");
    let reader = url.replace("postgres@", "reader@");
    assert_refused!(&reader, PostgresOpenError::ReadOnly { .. });

    server.stop();
    server.set(&["fsync=off"]);
    server.start();
    assert_refused!(&url, PostgresOpenError::NoSync { .. });
    let mut config = JournalConfig::default();
    config.durability = Durability::Volatile;
    drop(PostgresJournal::open(&url, config.into()).unwrap());

    server.stop();
    server.set(&[]);
    server.put("standby.signal", "");
    server.start();
    assert_refused!(&url, PostgresOpenError::Standby { .. });
}

#[test]
fn a_connection_of_tls_is_verified_unless_the_url_says_otherwise() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let at = |parameters: &str, server: &TestServer| {
        let port = server.port();
        format!("postgres://postgres:s3cret@localhost:{port}/postgres?schema=tls&{parameters}")
    };
    // There is no TLS at all.
    assert_refused!(&at("sslmode=verify-full", &server), PostgresOpenError::Tls { .. });
    assert_refused!(&at("sslmode=require", &server), PostgresOpenError::Tls { .. });
    assert_refused!(
        &at("sslrootcert=/nowhere", &server),
        PostgresOpenError::Tls { .. }
    );
    let folder = tempfile::tempdir().unwrap();
    let [key, certificate] = ["server.key", "server.crt"].map(|name| folder.path().join(name));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        eprintln!("SKIPPED: there is no openssl, so TLS was not tested");
        return;
    }
    server.stop();
    server.put("server.key", &std::fs::read_to_string(&key).unwrap());
    server.put("server.crt", &std::fs::read_to_string(&certificate).unwrap());
    server.set(&["ssl=on"]);
    server.start();
    let known = format!("sslrootcert={}", certificate.display());
    let journal = AtUrl(at(&known, &server)).open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&AtUrl(String::new()), &journal, &[&[7; 100_000]], true);
    author.assert_history(&journal);
    let users = server.sql("SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl");
    assert!(
        users[0][0].as_deref() != Some("0"),
        "the connections are encrypted"
    );
    drop(journal);
    drop(AtUrl(at("sslmode=require", &server)).open());
    // Nobody vouches for that certificate.
    assert_refused!(&at("sslmode=verify-full", &server), PostgresOpenError::Tls { .. });
    // Nor is it one for that host.
    let other = at(&format!("{known}&sslmode=verify-full"), &server).replace("localhost", "127.0.0.1");
    assert_refused!(&other, PostgresOpenError::Tls { .. });
}

#[test]
fn a_closed_store_has_no_session_any_more() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let (schema, name) = (server.schema(), "closed_store");
    let url = format!("{}&application_name={name}", server.url(&schema));
    let journal = AtUrl(url).open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&AtUrl(String::new()), &journal, &[b"one"], false);
    author.assert_history(&journal);
    let sessions = || {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
        server.sql(&sql)[0][0].clone()
    };
    assert_ne!(sessions().as_deref(), Some("0"));
    journal.close().unwrap();
    drop(journal);
    // The server notices by itself, soon.
    while sessions().as_deref() != Some("0") {
        std::thread::yield_now();
    }
}

/// A host that has gone without a word would keep the lock of its store until the system of the server gives the connection
/// up, by default after two hours.
#[test]
fn sessions_have_the_settings_by_which_a_server_notices_that_a_client_has_gone() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let (schema, name) = (server.schema(), "gone_client");
    server.sql(
        "CREATE ROLE impatient LOGIN SUPERUSER; ALTER ROLE impatient SET idle_session_timeout = '300ms'",
    );
    let port = server.port();
    let url =
        format!("postgres://impatient@127.0.0.1:{port}/postgres?schema={schema}&application_name={name}");
    let subject = AtUrl(url);
    let journal = subject.open();
    let mut author = Author::new(&journal, "a", 1);
    author.append(&subject, &journal, &[b"one"], false);
    author.assert_history(&journal);
    // The settings of a session are seen from inside only: a function that the flush calls tells them.
    server.sql(&format!(
        "CREATE TABLE {schema}.told (name text, setting text);
         CREATE FUNCTION {schema}.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO {schema}.told SELECT name, setting FROM pg_settings WHERE name IN ('tcp_keepalives_idle',
                 'tcp_keepalives_interval', 'tcp_keepalives_count', 'tcp_user_timeout',
                 'client_connection_check_interval', 'idle_session_timeout', 'statement_timeout');
             RETURN NULL; END $$;
         CREATE TRIGGER tell AFTER UPDATE ON {schema}.marker FOR EACH ROW EXECUTE FUNCTION {schema}.tell()"
    ));
    author.append(&subject, &journal, &[b"two"], false);
    let told = server.sql(&format!(
        "SELECT DISTINCT name, setting FROM {schema}.told ORDER BY name"
    ));
    let told: Vec<_> = told.iter().map(|row| row[1].as_deref().unwrap()).collect();
    assert_eq!(told, ["5000", "0", "30000", "3", "10", "3", "20000"]);
}

/// Without a turn to write the session would not be missed, and the store stood open to others.
#[test]
fn an_idle_journal_that_was_cut_off_takes_its_lock_again() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let journal = AtUrl(server.url(&schema)).open();
    let of_store = format!(
        "FROM pg_locks l JOIN pg_namespace n ON n.nspname = '{schema}' \
         WHERE l.locktype = 'advisory' AND l.objid::bigint = (n.oid::bigint + 2147483648) % 4294967296"
    );
    let holder = || server.sql(&format!("SELECT l.pid {of_store}")).pop();
    let before = holder().expect("it is open");
    server.sql(&format!("SELECT pg_terminate_backend(l.pid, 5000) {of_store}"));
    while holder().is_none_or(|pid| pid == before) {
        std::thread::yield_now();
    }
    assert_eq!(journal.failure(), None);
}

/// A host that takes a connection and says nothing, behind which the live one was not tried.
#[test]
fn a_host_that_does_not_answer_hides_no_other() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, live) = (silent.local_addr().unwrap().port(), server.port());
    let schema = server.schema();
    let url = format!(
        "postgres://postgres@127.0.0.1:{port},127.0.0.1:{port},127.0.0.1:{live}/postgres?schema={schema}&connect_timeout=1"
    );
    // To make the tables may take longer than the bound.
    drop(AtUrl(server.url(&schema)).open());
    let mut config = PostgresConfig::default();
    // Shorter than it takes to give up the two before it.
    config.answer_wait_max = Duration::from_secs(1);
    drop(PostgresJournal::open(&url, config).unwrap());
}

#[test]
fn a_schema_may_be_called_by_a_word_of_sql() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    for schema in ["user", "order", "select"] {
        let subject = AtUrl(server.url(schema));
        let journal = subject.open();
        let mut author = Author::new(&journal, "a", 1);
        author.append(&subject, &journal, &[b"one"], true);
        author.assert_history(&journal);
    }
}

/// A server that reads long until it has the first row of a large table.
#[test]
fn what_reads_a_whole_table_may_take_longer_than_other_statements() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let subject = AtUrl(server.url(&schema));
    let journal = subject.open();
    let (mut live, mut closed) = (Author::new(&journal, "a", 1), Author::new(&journal, "b", 2));
    live.append(&subject, &journal, &[b"one"], false);
    closed.append(&subject, &journal, &[b"one"], true);
    drop(journal);
    for table in ["live", "finished"] {
        server.sql(&format!(
            "ALTER TABLE {schema}.{table} RENAME TO {table}_rows;
             CREATE VIEW {schema}.{table} AS SELECT r.* FROM {schema}.{table}_rows r, pg_sleep(0.4)"
        ));
    }
    let mut config = PostgresConfig::default();
    (config.answer_wait_max, config.server_wait_max) = (Duration::from_millis(200), Duration::ZERO);
    let journal = PostgresJournal::open(&subject.0, config).unwrap();
    assert_eq!((journal.stats().live_runs, journal.stats().finished_runs), (1, 1));
    let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
    assert_eq!(report.live_runs, 1);
}

//! The address of a store: the URL of a database, with this crate's own parameters.
//!
//! A URL may hold a password. So errors here repeat nothing of it except the names of parameters, and `Debug` shows what
//! [`Address::shown`] does.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::error::PostgresOpenError;

/// The schema unless the URL names another.
const SCHEMA_DEFAULT: &str = "millrun";
/// PostgreSQL cuts longer names.
const SCHEMA_BYTES_MAX: usize = 63;

/// A database, the schema in it, and how to connect.
#[derive(Clone)]
pub(crate) struct Address {
    /// One for each host, in the order of the URL.
    pub(crate) connect: Vec<tokio_postgres::Config>,
    pub(crate) schema: String,
    pub(crate) tls: TlsDemand,
    /// The name under which the store is joined as a node; empty if a name is to be made up. `None`: the store is opened for
    /// this process alone.
    pub(crate) node: Option<String>,
    shown: String,
}

/// How a connection is to be encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsDemand {
    /// Not at all.
    Plain,
    /// Encrypted, without checking the server's certificate.
    Unverified,
    /// Encrypted, with a certificate for the server's host, of these authorities; `None`: those of the system.
    Verified { roots: Option<PathBuf> },
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// The longest name of a node, in bytes.
const NODE_NAME_BYTES_MAX: usize = 63;

/// Whether a node's name may contain this character.
pub(crate) fn is_of_node_name(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.')
}

fn bad(problem: impl Into<String>) -> PostgresOpenError {
    PostgresOpenError::Url {
        problem: problem.into(),
    }
}

/// What has been parsed of a URL.
#[derive(Default)]
struct Parts {
    user: Option<String>,
    node: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    ports: Vec<u16>,
    database: Option<String>,
    schema: Option<String>,
    ssl_mode: Option<String>,
    roots: Option<PathBuf>,
    application: Option<String>,
    connect_timeout: Option<Duration>,
    read_write: bool,
}

impl Address {
    /// Reads `postgres://user:password@host:port/database?schema=name`.
    pub(crate) fn parse(url: &str) -> Result<Self, PostgresOpenError> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or_else(|| bad("it must begin with postgres:// or postgresql://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (rest, database) = rest.split_once('/').unwrap_or((rest, ""));
        if database.contains(['@', '/']) {
            // What stands before the slash may be the first half of a password.
            return Err(bad(
                "an @ or a / stands behind the host: write them as %40 and %2F in a password and in the name of a database",
            ));
        }
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        let mut parts = Parts::default();
        if let Some(login) = login {
            if login.contains('@') {
                return Err(bad(
                    "the user and the password must not have an @ of their own: write it as %40",
                ));
            }
            let (user, password) = match login.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (login, None),
            };
            parts.user = Some(decoded(user, "the user")?).filter(|user| !user.is_empty());
            parts.password = password
                .map(|password| decoded(password, "the password"))
                .transpose()?;
        }
        if !database.is_empty() {
            parts.database = Some(decoded(database, "the name of the database")?);
        }
        for host in hosts.split(',').filter(|host| !host.is_empty()) {
            parts.host(host)?;
        }
        if query.contains('@') {
            // The query may be part of a password.
            return Err(bad(
                "a ? or an @ stands where none may: write them as %3F and %40",
            ));
        }
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            parts.parameter(name, &decoded(value, "the value of a parameter")?)?;
        }
        parts.address()
    }

    /// The address without its password.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }
}

fn decoded(text: &str, what: &str) -> Result<String, PostgresOpenError> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| bad(format!("{what} is not text")))?;
    if decoded.contains('\0') {
        return Err(bad(format!("{what} has a zero byte")));
    }
    Ok(decoded.into_owned())
}

impl Parts {
    /// Parses a host, with or without a port.
    fn host(&mut self, text: &str) -> Result<(), PostgresOpenError> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest
                    .split_once(']')
                    .ok_or_else(|| bad("the address of a host lacks its closing bracket"))?;
                (host.to_owned(), port.strip_prefix(':'))
            }
            None => match text.split_once(':') {
                Some((host, port)) => (decoded(host, "the host")?, Some(port)),
                None => (decoded(text, "the host")?, None),
            },
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
        if !(host.starts_with('/') || host.chars().all(is_name)) || host.is_empty() {
            // The error does not repeat the host: if a password has an unescaped character, this text is the rest of the
            // password.
            return Err(bad(
                "a host is neither a name, nor an address, nor the folder of a socket: write signs such as @, / and # of a \
                 password as %40, %2F and %23",
            ));
        }
        if let Some(port) = port {
            let port = port
                .parse()
                .map_err(|_| bad("a port is not a number below 65536"))?;
            self.ports.push(port);
        }
        self.hosts.push(host);
        Ok(())
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<(), PostgresOpenError> {
        let invalid = |expected: &str| bad(format!("the value of {name} must be {expected}"));
        match name {
            "schema" => self.schema = Some(value.to_owned()),
            "node" if value.len() <= NODE_NAME_BYTES_MAX && value.chars().all(is_of_node_name) => {
                self.node = Some(value.to_owned());
            }
            "node" => {
                return Err(invalid(
                    "up to 63 lower-case letters, digits, dots, hyphens and underscores, or nothing for a name of its own",
                ));
            }
            "sslmode" => match value {
                "disable" | "require" | "verify-full" => self.ssl_mode = Some(value.to_owned()),
                _ => return Err(invalid("disable, require or verify-full")),
            },
            "sslrootcert" => self.roots = Some(value.into()),
            "host" => {
                self.hosts.clear();
                for host in value.split(',') {
                    self.host(host)?;
                }
            }
            "port" => {
                let ports = value.split(',').map(str::parse).collect::<Result<_, _>>();
                self.ports = ports.map_err(|_| invalid("a number below 65536"))?;
            }
            "user" => self.user = Some(value.to_owned()),
            "password" => self.password = Some(value.to_owned()),
            "dbname" => self.database = Some(value.to_owned()),
            "application_name" => self.application = Some(value.to_owned()),
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.ok_or_else(|| invalid("a number of seconds"))?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            "target_session_attrs" => match value {
                "any" => self.read_write = false,
                "read-write" | "primary" => self.read_write = true,
                _ => return Err(invalid("any, read-write or primary")),
            },
            _ => {
                let known = "schema, node, sslmode, sslrootcert, host, port, user, password, dbname, application_name, \
                             connect_timeout, target_session_attrs";
                let name: String = name.chars().take(40).collect();
                return Err(bad(format!("there is no parameter {name:?}: known are {known}")));
            }
        }
        Ok(())
    }

    fn address(self) -> Result<Address, PostgresOpenError> {
        let schema = self.schema.unwrap_or_else(|| SCHEMA_DEFAULT.to_owned());
        check_schema(&schema)?;
        let mut hosts = self.hosts;
        if hosts.is_empty() {
            hosts.push("localhost".to_owned());
        }
        let mut connect = tokio_postgres::Config::new();
        if !matches!(self.ports.len(), 0 | 1) && self.ports.len() != hosts.len() {
            return Err(bad("there must be one port for all hosts, or one for each"));
        }
        let verifies = !matches!(self.ssl_mode.as_deref(), Some("disable" | "require"));
        if self.roots.is_some() && !verifies {
            return Err(bad(
                "sslrootcert names authorities, and with this sslmode no certificate is verified: say verify-full, or leave \
                 sslrootcert out",
            ));
        }
        let is_local = hosts.iter().all(|host| is_local(host));
        let has_sockets_only = hosts.iter().all(|host| host.starts_with('/'));
        let tls = match self.ssl_mode.as_deref() {
            Some("disable") => TlsDemand::Plain,
            Some("require") => TlsDemand::Unverified,
            None if is_local && self.roots.is_none() => TlsDemand::Plain,
            _ if has_sockets_only => TlsDemand::Plain,
            _ => TlsDemand::Verified { roots: self.roots },
        };
        connect.ssl_mode(match tls {
            TlsDemand::Plain => SslMode::Disable,
            TlsDemand::Unverified | TlsDemand::Verified { .. } => SslMode::Require,
        });
        if let Some(user) = &self.user {
            connect.user(user);
        }
        if let Some(password) = &self.password {
            connect.password(password);
        }
        if let Some(database) = &self.database {
            connect.dbname(database);
        }
        connect.application_name(self.application.as_deref().unwrap_or("millrun"));
        connect.connect_timeout(self.connect_timeout.unwrap_or(Duration::from_secs(10)));
        // Notices within half a minute that the other side is gone.
        connect.keepalives_idle(Duration::from_secs(10));
        connect.keepalives_interval(Duration::from_secs(3));
        connect.keepalives_retries(3);
        connect.tcp_user_timeout(Duration::from_secs(20));
        if self.read_write || hosts.len() > 1 {
            connect.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let connect = hosts.iter().enumerate().map(|(index, host)| {
            let mut connect = connect.clone();
            connect.host(host);
            if let Some(port) = self.ports.get(index).or(self.ports.first()) {
                connect.port(*port);
            }
            connect
        });
        let connect = connect.collect();
        let user = self.user.map(|user| format!("{user}@")).unwrap_or_default();
        let database = self.database.unwrap_or_default();
        let shown = format!("postgres://{user}{}/{database}?schema={schema}", hosts.join(","));
        Ok(Address {
            connect,
            schema,
            tls,
            node: self.node,
            shown,
        })
    }
}

/// Accepts only names that SQL takes without quotes.
fn check_schema(name: &str) -> Result<(), PostgresOpenError> {
    let mut chars = name.chars();
    let begins = chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    let is_sound = begins
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.len() <= SCHEMA_BYTES_MAX
        && !name.starts_with("pg_")
        && name != "information_schema";
    match is_sound {
        true => Ok(()),
        false => Err(PostgresOpenError::SchemaName {
            name: name.chars().take(SCHEMA_BYTES_MAX + 1).collect(),
        }),
    }
}

/// Whether the connection stays on this machine.
fn is_local(host: &str) -> bool {
    host.starts_with('/')
        || host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Address {
        Address::parse(url).unwrap()
    }

    #[test]
    fn a_url_names_the_database_the_schema_and_the_way_there() {
        let address =
            parsed("postgres://app:p%40ss@db.example.com:5433/orders?schema=shop_2&connect_timeout=3");
        assert_eq!(address.schema, "shop_2");
        assert_eq!(
            address.shown(),
            "postgres://app@db.example.com/orders?schema=shop_2"
        );
        assert_eq!(address.connect[0].get_password(), Some(&b"p@ss"[..]));
        assert_eq!(address.connect[0].get_ports(), [5433]);
        assert_eq!(parsed("postgresql://localhost/x").schema, "millrun");
        let two = parsed("postgres://app@one:1,two:2/x");
        let ports: Vec<_> = two.connect.iter().map(|host| host.get_ports()[0]).collect();
        assert_eq!(ports, [1, 2]);
        for host in &two.connect {
            assert_eq!(host.get_hosts().len(), 1);
            assert_eq!(host.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        }
    }

    #[test]
    fn a_url_may_name_the_node_that_joins() {
        let node = |url: &str| parsed(url).node;
        assert_eq!(node("postgres://localhost/x"), None);
        assert_eq!(node("postgres://localhost/x?node="), Some(String::new()));
        assert_eq!(
            node("postgres://localhost/x?node=eu-1.a_b"),
            Some("eu-1.a_b".to_owned())
        );
        for name in ["A", "a b", "a/b", "é", &"n".repeat(64)] {
            let error = Address::parse(&format!("postgres://localhost/x?node={name}")).expect_err(name);
            assert!(error.to_string().contains("node"), "{error}");
        }
    }

    #[test]
    fn another_machine_is_only_talked_to_over_verified_tls_unless_the_url_says_so() {
        let verified = TlsDemand::Verified { roots: None };
        for (url, expected) in [
            ("postgres://db.example.com/x", verified.clone()),
            ("postgres://10.0.0.7/x", verified.clone()),
            ("postgres://localhost,db/x", verified.clone()),
            ("postgres://db/x?sslmode=verify-full", verified.clone()),
            ("postgres://localhost/x?sslmode=verify-full", verified),
            ("postgres://db/x?sslmode=require", TlsDemand::Unverified),
            ("postgres://db/x?sslmode=disable", TlsDemand::Plain),
            ("postgres://localhost/x", TlsDemand::Plain),
            ("postgres://[::1]:5432/x", TlsDemand::Plain),
            ("postgres://127.0.0.1/x", TlsDemand::Plain),
            ("postgres:///x?host=/var/run/postgresql", TlsDemand::Plain),
        ] {
            assert_eq!(parsed(url).tls, expected, "{url}");
        }
    }

    #[test]
    fn authorities_that_nobody_would_ask_are_refused() {
        for mode in ["disable", "require"] {
            let url = format!("postgres://db/x?sslrootcert=/ca.pem&sslmode={mode}");
            let error = Address::parse(&url).expect_err(&url);
            assert!(error.to_string().contains("sslrootcert"), "{error}");
        }
        let roots = Some(PathBuf::from("/ca.pem"));
        for url in [
            "postgres://db/x?sslrootcert=/ca.pem",
            "postgres://db/x?sslrootcert=/ca.pem&sslmode=verify-full",
        ] {
            let roots = roots.clone();
            assert_eq!(parsed(url).tls, TlsDemand::Verified { roots }, "{url}");
        }
    }

    #[test]
    fn no_error_repeats_a_password() {
        for url in [
            "http://app:secret@db/x",
            "postgres://app:se/secret@db/x",
            "postgres://app:se@secret@db/x",
            "postgres://app:secret@db:port/x",
            "postgres://app:#secret@db/x?colour=red",
            "postgres://app:secret@db/x?sslmode=perhaps",
            "postgres://app:%ffsecret@db/x",
            "postgres://app:?secret@db/x",
            "postgres://app:12/secret@db/x",
            "postgres://app:12/secret/x",
            "postgres://app:12/sec/secret@db/x",
            "postgres://secret secret/x",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(matches!(error, PostgresOpenError::Url { .. }), "{url}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{url}: {error}");
        }
        let address = parsed("postgres://app:secret@db/x");
        assert!(!format!("{address:?}").contains("secret"));
        assert!(!format!("{:?}", address.connect).contains("secret"));
    }

    #[test]
    fn names_of_schemas_need_no_quotes() {
        let long = "s".repeat(64);
        for name in [
            "Orders",
            "1st",
            "a-b",
            "a\"b",
            "pg_x",
            "information_schema",
            "",
            &long,
            "a b",
            "é",
        ] {
            let error = Address::parse(&format!("postgres://localhost/x?schema={name}")).expect_err(name);
            assert!(matches!(error, PostgresOpenError::SchemaName { .. }), "{error:?}");
        }
    }
}

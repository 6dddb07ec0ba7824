//! Which requests are let in: by host, by origin, by token.

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Request, StatusCode};
use millrun_http::{Access, Console, OPERATIONS, Sites, Token, router};

use crate::support::{Answer, runtime, send};

const READING: &str = "reading-0123456789";
const OPERATING: &str = "operating-0123456789";

fn tokens() -> Access {
    Access::token(Token::new(READING).unwrap(), Token::new(OPERATING).unwrap())
}

fn nested(router: Router) -> Router {
    Router::new().nest("/some/prefix", router)
}

/// A GET of the topology, which a reader may do, with these headers.
async fn ask(app: &Router, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(
        Request::get("/some/prefix/v1/stats"),
        |request: Builder, (name, value)| request.header(*name, *value),
    );
    send(app, request.body(Body::empty()).unwrap()).await
}

/// The code of the problem, or "" where there is none.
async fn refusal(app: &Router, headers: &[(&str, &str)]) -> String {
    let answer = ask(app, headers).await;
    if answer.status == StatusCode::OK {
        return String::new();
    }
    answer.code()
}

#[tokio::test]
async fn a_request_under_a_foreign_name_is_refused() {
    let runtime = runtime().await;
    let loopback = nested(router(&runtime, Access::read_only()));
    let sites = Sites::loopback().host("App.example.com").host("192.0.2.7");
    let named = nested(Console::new(&runtime, Access::read_only()).sites(sites).router());
    let sites = Sites::loopback().addresses();
    let addresses = nested(Console::new(&runtime, Access::read_only()).sites(sites).router());
    // Whether each of the three lets it in.
    for (host, lets_in) in [
        ("localhost", [true, true, true]),
        ("LocalHost:7070", [true, true, true]),
        ("127.0.0.1:7070", [true, true, true]),
        ("127.8.9.10", [true, true, true]),
        ("[::1]:7070", [true, true, true]),
        ("app.example.com", [false, true, false]),
        ("APP.example.com:443", [false, true, false]),
        ("192.0.2.7", [false, true, true]),
        ("192.0.2.8:80", [false, false, true]),
        ("[2001:db8::1]", [false, false, true]),
        ("evil.example", [false; 3]),
        ("localhost.evil.example", [false; 3]),
        ("sub.app.example.com", [false; 3]),
        ("app.example.com.", [false; 3]),
        ("localhost@evil.example", [false; 3]),
        ("evil.example@localhost", [false; 3]),
        ("127.0.0.1.evil.example", [false; 3]),
        ("0x7f000001", [false; 3]),
        ("", [false; 3]),
        (" ", [false; 3]),
    ] {
        for (app, lets_in) in [&loopback, &named, &addresses].into_iter().zip(lets_in) {
            let expected = if lets_in { "" } else { "host" };
            assert_eq!(refusal(app, &[("host", host)]).await, expected, "{host:?}");
        }
    }
    assert_eq!(
        refusal(&loopback, &[]).await,
        "",
        "what sends no host is no browser"
    );
    let twice = [("host", "localhost"), ("host", "localhost")];
    assert_eq!(refusal(&loopback, &twice).await, "host");
    let request = Request::get("http://evil.example/some/prefix/v1/stats").header("host", "localhost");
    let answer = send(&loopback, request.body(Body::empty()).unwrap()).await;
    assert_eq!((answer.status.as_u16(), &*answer.code()), (421, "host"));
}

#[tokio::test]
async fn a_page_of_another_site_is_refused() {
    let runtime = runtime().await;
    let app = nested(router(&runtime, Access::read_only()));
    let sites = Sites::loopback().origin("https://app.example.com");
    let behind = nested(Console::new(&runtime, Access::read_only()).sites(sites).router());
    for (origin, lets_in) in [
        ("http://localhost:7070", [true, true]),
        ("HTTP://LocalHost:7070", [true, true]),
        ("https://localhost:7070", [true, true]),
        ("https://app.example.com", [false, true]),
        ("http://app.example.com", [false, false]),
        ("https://app.example.com:444", [false, false]),
        ("http://localhost:7071", [false, false]),
        ("http://localhost", [false, false]),
        ("http://127.0.0.1:7070", [false, false]),
        ("http://localhost:7070@evil.example", [false, false]),
        ("http://evil.example", [false, false]),
        ("localhost:7070", [false, false]),
        ("null", [false, false]),
        ("", [false, false]),
    ] {
        for (app, lets_in) in [&app, &behind].into_iter().zip(lets_in) {
            let expected = if lets_in { "" } else { "origin" };
            let headers = [("host", "localhost:7070"), ("origin", origin)];
            assert_eq!(refusal(app, &headers).await, expected, "{origin:?}");
        }
    }
    let origin = ("origin", "http://localhost:7070");
    assert_eq!(
        refusal(&app, &[origin]).await,
        "origin",
        "of no host it is not the page"
    );
    assert_eq!(
        refusal(&app, &[("host", "localhost:7070"), origin, origin]).await,
        "origin"
    );
}

#[tokio::test]
async fn every_route_checks_host_and_origin() {
    let runtime = runtime().await;
    let app = nested(router(&runtime, Access::operator()));
    let mut targets: Vec<_> = OPERATIONS
        .iter()
        .map(|operation| (operation.method.as_str(), operation.path))
        .collect();
    targets.extend([
        ("GET", "v1/nothing"),
        ("DELETE", "v1/live"),
        ("OPTIONS", "v1/stats"),
    ]);
    for (method, path) in targets {
        let path = path.replace("{id}", "o").replace("{run}", "7");
        for (name, value, code) in [
            ("host", "evil.example", "host"),
            ("origin", "http://evil.example", "origin"),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/some/prefix/{path}"));
            let answer = send(&app, request.header(name, value).body(Body::empty()).unwrap()).await;
            assert_eq!(answer.code(), code, "{method} {path}");
            assert_eq!(answer.header("cache-control"), "no-store");
        }
    }
}

#[tokio::test]
async fn a_token_gives_the_role_that_it_stands_for() {
    let runtime = runtime().await;
    let both = nested(router(&runtime, tokens()));
    let operating = nested(router(
        &runtime,
        Access::token(None, Token::new(OPERATING).unwrap()),
    ));
    for (authorization, both_role, operating_role) in [
        ("Bearer operating-0123456789", "operator", "operator"),
        ("Bearer reading-0123456789", "reader", ""),
        ("Bearer operating-012345678", "", ""),
        ("Bearer operating-01234567890", "", ""),
        ("Bearer Operating-0123456789", "", ""),
        ("Bearer  operating-0123456789", "", ""),
        ("bearer operating-0123456789", "", ""),
        ("operating-0123456789", "", ""),
        ("Basic b3BlcmF0aW5nLTAxMjM0NTY3ODk=", "", ""),
        ("Bearer ", "", ""),
        ("", "", ""),
    ] {
        for (app, role) in [(&both, both_role), (&operating, operating_role)] {
            let answer = session(app, &[("authorization", authorization)], "{}").await;
            if role.is_empty() {
                assert_eq!(
                    (answer.status.as_u16(), &*answer.code()),
                    (401, "token"),
                    "{authorization}"
                );
                assert_eq!(answer.header("www-authenticate"), "Bearer");
                assert_eq!(answer.header("set-cookie"), "");
            } else {
                assert_eq!(answer.json()["role"], role, "{authorization}");
            }
            assert!(!answer.text.contains("0123456789"), "{}", answer.text);
        }
    }
    let authorization = ("authorization", "Bearer operating-0123456789");
    assert_eq!(refusal(&both, &[authorization]).await, "");
    assert_eq!(refusal(&both, &[authorization, authorization]).await, "token");
    assert_eq!(refusal(&both, &[]).await, "token");
    // Whether the program answers is told to everybody.
    let live = Request::get("/some/prefix/v1/live").body(Body::empty()).unwrap();
    assert_eq!(send(&both, live).await.status, StatusCode::OK);
    // One who may read is known, and not asked for a token.
    let request = Request::post("/some/prefix/v1/instances/o/signal");
    let request = request.header("authorization", "Bearer reading-0123456789");
    assert_eq!(
        send(&both, request.body(Body::empty()).unwrap()).await.code(),
        "forbidden"
    );
}

async fn session(app: &Router, headers: &[(&str, &str)], body: &'static str) -> Answer {
    let request = Request::post("/some/prefix/v1/session").header("content-type", "application/json");
    let request = headers.iter().fold(request, |request: Builder, (name, value)| {
        request.header(*name, *value)
    });
    send(app, request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn a_page_trades_its_token_for_a_cookie_and_ends_it() {
    let runtime = runtime().await;
    let app = nested(router(&runtime, tokens()));
    let token = ("authorization", "Bearer operating-0123456789");
    let answer = session(&app, &[token], "{}").await;
    let set = answer.header("set-cookie").to_owned();
    let (cookie, attributes) = set.split_once(';').unwrap();
    assert_eq!(attributes, " HttpOnly; SameSite=Strict");
    assert!(!set.contains("0123456789"), "{set}");

    // As the page sends it, beside cookies of others.
    let beside = format!("a=b; {cookie}; millrun-=; millrun-00000000={}", "0".repeat(64));
    let answer = session(&app, &[("cookie", &beside)], "{}").await;
    assert_eq!(answer.json()["role"], "operator");
    assert_eq!(
        answer.header("set-cookie"),
        "",
        "a cookie is not traded for another"
    );
    // A wrong token is not made good by a cookie.
    let wrong = ("authorization", "Bearer operating-9876543210");
    assert_eq!(refusal(&app, &[("cookie", cookie), wrong]).await, "token");
    let (name, value) = cookie.split_once('=').unwrap();
    let forged = [
        format!("{name}={}", value.to_uppercase()),
        format!("{name}={}", &value[1..]),
        format!("{name}={OPERATING}"),
        format!("{name}="),
        name.to_owned(),
        format!("{}={value}", name.to_uppercase()),
        format!("x{name}={value}"),
    ];
    for forged in forged {
        assert_eq!(refusal(&app, &[("cookie", &forged)]).await, "token", "{forged}");
    }

    let ended = session(&app, &[("cookie", cookie)], r#"{"end": true}"#).await;
    let ends: Vec<_> = ended.headers.get_all("set-cookie").iter().collect();
    assert_eq!(ends.len(), 2);
    let end = format!("{name}=; HttpOnly; SameSite=Strict; Max-Age=0");
    assert!(ends.iter().any(|value| *value == end.as_str()), "{ends:?}");

    // Where the page came encrypted, its cookie travels no other way.
    let origin = [("host", "localhost"), ("origin", "https://localhost"), token];
    let answer = session(&app, &origin, "{}").await;
    assert!(answer.header("set-cookie").contains("; Secure"));
}

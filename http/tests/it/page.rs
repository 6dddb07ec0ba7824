//! The page of the console, as it is served.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun_http::{Access, Role, router};

use crate::support::{Answer, get, runtime, send};

/// An app with the page under a prefix, for callers that may not even read.
async fn app(prefix: &str) -> Router {
    let router = router(&runtime().await, Access::by(|_| Role::Anonymous));
    match prefix {
        "" => router,
        prefix => Router::new().nest(prefix, router),
    }
}

/// What a browser makes of a link on the page at this path.
fn resolved(path: &str, link: &str) -> String {
    let (folder, _) = path.rsplit_once('/').unwrap();
    format!("{folder}/{}", link.trim_start_matches("./"))
}

fn files(page: &Answer) -> Vec<&str> {
    let parts = page.text.split('"');
    parts.filter(|part| part.starts_with("console/")).collect()
}

#[tokio::test]
async fn any_prefix_leads_to_the_page_and_the_page_to_its_files() {
    for prefix in ["", "/millrun", "/deep/er/a%20b"] {
        let app = app(prefix).await;
        let root = if prefix.is_empty() { "/" } else { prefix };
        let page = format!("{prefix}/console");
        let moved = get(&app, root).await;
        assert_eq!(moved.status, StatusCode::TEMPORARY_REDIRECT, "{root}");
        assert_eq!(resolved(root, moved.header("location")), page);
        let answer = get(&app, &page).await;
        assert_eq!(answer.status, StatusCode::OK, "{page}");
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(answer.header("cache-control"), "no-store");
        let files = files(&answer);
        assert_eq!(files.len(), 5);
        for file in files {
            let answer = get(&app, &resolved(&page, file)).await;
            assert_eq!(answer.status, StatusCode::OK, "{file}");
            assert!(answer.header("cache-control").contains("immutable"));
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
        }
    }
}

#[tokio::test]
async fn a_root_that_ends_with_a_slash_leads_to_the_page() {
    let app = Router::new().nest_service("/millrun", app("").await);
    let moved = get(&app, "/millrun/").await;
    assert_eq!(
        resolved("/millrun/", moved.header("location")),
        "/millrun/console"
    );
}

#[tokio::test]
async fn the_page_allows_only_scripts_and_styles_of_its_own() {
    let page = get(&app("").await, "/console").await;
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types lit-html",
    ] {
        assert!(policy.split("; ").any(|one| one == part), "{part}");
    }
    assert_eq!(policy.split("; ").count(), 10);
}

#[tokio::test]
async fn a_path_that_is_no_file_of_the_page_leads_nowhere() {
    let app = app("/millrun").await;
    let page = get(&app, "/millrun/console").await;
    let icon = files(&page)
        .into_iter()
        .find(|file| file.ends_with("icon.svg"))
        .unwrap();
    let folder = icon.strip_suffix("icon.svg").unwrap();
    for path in [
        "console/".to_owned(),
        folder.to_owned(),
        format!("{folder}README.md"),
        format!("{folder}vendor"),
        format!("{folder}../Cargo.toml"),
        format!("{folder}..%2f..%2fCargo.toml"),
        format!("{folder}%2e%2e/%2e%2e/Cargo.toml"),
        format!("{folder}/etc/passwd"),
        "console/0000000000000000/icon.svg".to_owned(),
        "elsewhere".to_owned(),
    ] {
        let answer = get(&app, &format!("/millrun/{path}")).await;
        assert_eq!(answer.code(), "no-route", "{path}");
    }
    let posted = Request::post("/millrun/console").body(Body::empty()).unwrap();
    assert_eq!(send(&app, posted).await.code(), "method");
}

#[tokio::test]
async fn the_page_is_given_under_names_of_the_program_only() {
    let app = app("").await;
    let asked = |host: &str| {
        let request = Request::get("/console").header("host", host);
        request.body(Body::empty()).unwrap()
    };
    assert_eq!(send(&app, asked("127.0.0.1:4000")).await.status, StatusCode::OK);
    assert_eq!(send(&app, asked("attacker.example")).await.code(), "host");
}

//! The page of the console: its files are part of the program.
//!
//! The path of a request is only looked up in a table. The page itself is requested anew each time. Its scripts and styles
//! are in a folder whose name is a hash of them all: so they may be cached for ever, and files of two versions never mix. The
//! files contain nothing of the runtime, so any caller gets them.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{OriginalUri, Path};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::router::finished;

/// Only scripts and styles of this folder, and none in the page itself. No text becomes HTML except through lit-html, which
/// builds it from constants only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types lit-html";

/// A file that the page asks for.
struct Asset {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($media_type:literal: $($path:literal)+;)+) => {
        &[$($(Asset {
            path: $path,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../console/", $path)),
        }),+),+]
    };
}

static ASSETS: &[Asset] = assets! {
    "text/javascript":
        "app.js" "api.js" "broker.js" "bulk.js" "chart.js" "dialog.js" "events.js" "exact.js" "filter.js" "format.js" "latest.js" "live.js" "managing.js"
        "output.js" "overview.js" "parts.js" "past.js" "queues.js" "records.js" "rows.js" "run.js" "runs.js" "tail.js" "timeline.js" "trace.js" "ui.js" "value.js" "vendor/lit-html.js"
        "vendor/uPlot.iife.min.js";
    "text/css": "console.css" "vendor/uPlot.min.css";
    "image/svg+xml": "icon.svg";
};

/// The page, with the folder's name inserted.
static PAGE: LazyLock<String> =
    LazyLock::new(|| include_str!("../console/index.html").replace("{version}", &VERSION));

/// The name of the folder: a hash of all files in it.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut sum = Sha256::new();
    for asset in ASSETS {
        sum.update(asset.path);
        sum.update(asset.bytes.len().to_le_bytes());
        sum.update(asset.bytes);
    }
    let sum = sum.finalize();
    sum.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
});

/// The routes of the page.
pub(crate) fn page_routes() -> Router {
    Router::new()
        .route("/", get(to_page))
        .route("/console", get(page))
        .route("/console/{version}/{*path}", get(asset))
}

/// Redirects from the router's root to the page. The link is relative to the browser's URL, which ends with a slash behind a
/// proxy that strips a prefix, or where the router is nested as a service.
async fn to_page(OriginalUri(asked): OriginalUri) -> Response {
    let folder = asked.path().rsplit('/').next().unwrap_or_default();
    let link = match folder {
        "" => "console".to_owned(),
        folder => format!("{folder}/console"),
    };
    // Without `./`, a colon in the first folder would be read as a scheme.
    let link = HeaderValue::try_from(format!("./{link}"));
    match link {
        Ok(link) => finished((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, link)]).into_response()),
        Err(_) => finished(Problem::new("no-route", "the path is no link").into_response()),
    }
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
    ];
    finished((headers, PAGE.as_str()).into_response())
}

async fn asset(Path((version, path)): Path<(String, String)>) -> Response {
    let asset = ASSETS
        .iter()
        .find(|asset| asset.path == path && version == *VERSION);
    let Some(asset) = asset else {
        return finished(Problem::new("no-route", "the page has no such file").into_response());
    };
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// The size of all files together, as they are served.
    const BYTES_MAX: usize = 224 * 1024;

    fn folder(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("console")
            .join(name)
    }

    #[test]
    fn each_file_of_the_folder_is_in_the_table() {
        let listed: BTreeSet<_> = ASSETS.iter().map(|asset| asset.path.to_owned()).collect();
        let mut found = BTreeSet::new();
        for place in ["", "vendor/"] {
            for entry in fs::read_dir(folder(place)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let is_served = [".js", ".css", ".svg"].iter().any(|end| name.ends_with(end));
                if is_served {
                    found.insert(format!("{place}{name}"));
                }
            }
        }
        assert_eq!(listed, found);
        let bytes: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(bytes <= BYTES_MAX, "{bytes}");
    }

    #[test]
    fn code_of_others_is_as_it_was_published() {
        let mut summed = BTreeSet::new();
        for line in fs::read_to_string(folder("vendor/SHA256SUMS")).unwrap().lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let bytes = fs::read(folder("vendor").join(name)).unwrap();
            let is: String = Sha256::digest(bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(is, sum, "{name}");
            summed.insert(format!("vendor/{name}"));
        }
        for asset in ASSETS.iter().filter(|asset| asset.path.starts_with("vendor/")) {
            assert!(summed.contains(asset.path), "{}", asset.path);
        }
    }

    #[test]
    fn the_page_and_its_files_name_files_that_there_are() {
        let is_there = |path: &str| ASSETS.iter().any(|asset| asset.path == path);
        for part in PAGE.split(&format!("console/{}/", *VERSION)).skip(1) {
            let path = part.split('"').next().unwrap();
            assert!(is_there(path), "{path}");
        }
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("vendor/")) {
            let text = str::from_utf8(asset.bytes).unwrap();
            for part in text.split(" from './").skip(1) {
                let path = part.split('\'').next().unwrap();
                assert!(is_there(path), "{} imports {path}", asset.path);
            }
        }
        // The policy would refuse inline scripts and styles.
        assert!(!PAGE.contains("<script>") && !PAGE.contains("style="));
    }
}

//! The page over very many live runs: as many as `MILLRUN_PAGE_RUNS` says, or a few thousand.

use serde_json::json;

use crate::{Scene, runs_of_long_form};

const LEN: u64 = 5_000;
const NODES_MAX: u64 = 2_500;
const HEAP_BYTES_MAX: u64 = 60 * 1024 * 1024;
/// The parts of the page, and what each shows when it can be used.
const PARTS: [(&str, &str); 5] = [
    ("", "document.querySelector('#page h1')"),
    ("runs", "document.querySelector('.list tbody tr')"),
    ("instances/w-7", "document.querySelector('.events .row .kind')"),
    ("queues", "document.querySelector('#page h1')"),
    ("parts", "document.querySelector('#page h1')"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_very_many_runs_each_part_stays_within_bounds() {
    let Some(scene) = Scene::new().await else { return };
    let len = runs_of_long_form().unwrap_or(LEN);
    scene.world.crowd(len).await;
    for (part, usable) in PARTS {
        scene.open("/millrun", part);
        scene.browser.until(usable);
        let after_ms = scene.browser.run("return performance.now()", &[]);
        let nodes = scene
            .browser
            .run("return document.querySelectorAll('*').length", &[]);
        let heap = scene.browser.devtools("Runtime.getHeapUsage", &json!({}));
        eprintln!("{len} runs, {part}: usable after {after_ms} ms, {nodes} nodes, {heap}");
        assert!(nodes.as_u64().unwrap() <= NODES_MAX, "{part}: {nodes} nodes");
        assert!(
            heap["usedSize"].as_f64().unwrap() <= HEAP_BYTES_MAX as f64,
            "{part}: {heap}"
        );
    }
    scene.is_quiet();
}

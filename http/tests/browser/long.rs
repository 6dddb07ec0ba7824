//! A run of many events, of which only the visible rows exist.

use serde_json::json;

use crate::{Scene, runs_of_long_form};

/// Events of the run.
const LEN: u64 = 100_000;
const NODES_MAX: u64 = 2_500;
const HEAP_BYTES_MAX: u64 = 60 * 1024 * 1024;
/// How long a script of the page may keep it from scrolling.
const TASK_MS_MAX: f64 = 100.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_hundred_thousand_events_is_scrolled_through_within_bounds() {
    let Some(scene) = Scene::new().await else { return };
    let last = scene.world.long("very-long", LEN).await;
    scene.open("/millrun", "instances/very-long");
    scene
        .browser
        .until("document.querySelector('.events .row .kind')");
    // Through all of it in 200 steps: each is drawn, and many are read. The browser tells of tasks from 50 ms on.
    let scrolled = scene.browser.run_async(
        "let longest = 0;
         let told = 0;
         const see = entries => entries.forEach(task => { told++; longest = Math.max(longest, task.duration); });
         const tasks = new PerformanceObserver(list => see(list.getEntries()));
         tasks.observe({ type: 'longtask' });
         const list = document.querySelector('.events');
         const step = (list.scrollHeight - list.clientHeight) / 200;
         let nodes = 0;
         for (let i = 0; i <= 200; i++) {
           list.scrollTop = i * step;
           await new Promise(done => requestAnimationFrame(() => setTimeout(done, 5)));
           nodes = Math.max(nodes, document.querySelectorAll('*').length);
         }
         see(tasks.takeRecords());
         tasks.disconnect();
         return { nodes, told, longest };",
        &[],
    );
    let (nodes, longest_ms) = (&scrolled["nodes"], scrolled["longest"].as_f64().unwrap());
    assert!(nodes.as_u64().unwrap() <= NODES_MAX, "{nodes}");
    if runs_of_long_form().is_some() {
        assert!(longest_ms <= TASK_MS_MAX, "a task took {longest_ms} ms");
    }
    scene.browser.until(&format!(
        "[...document.querySelectorAll('.events .row')].some(row => row.innerText.includes('{last}') && row.querySelector('.kind'))"
    ));
    let heap = scene.browser.devtools("Runtime.getHeapUsage", &json!({}));
    assert!(
        heap["usedSize"].as_f64().unwrap() <= HEAP_BYTES_MAX as f64,
        "{heap}"
    );
    let told = &scrolled["told"];
    eprintln!("{nodes} nodes, {told} tasks of 50 ms or more, the longest {longest_ms} ms, {heap}");
    scene.is_quiet();
}

//! Runs are found by a filter that stands in the address, page by page, and shown while they change.

use serde_json::json;

use crate::Scene;

/// The ids in the table of runs, in its order.
fn ids(scene: &Scene) -> Vec<String> {
    let ids =
        "return [...document.querySelectorAll('.list tbody tr td:first-child')].map(one => one.innerText)";
    let ids = scene.browser.run(ids, &[]);
    serde_json::from_value(ids).unwrap()
}

/// Follows a link of the page by the text that it begins with.
fn follow(scene: &Scene, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('#page a')].find(one => one.textContent.trim().startsWith({}))",
        json!(text)
    );
    scene.browser.until(&format!("!!{found}"));
    scene.browser.run(&format!("{found}.click()"), &[]);
}

/// Waits until the table has `len` runs.
fn until_len(scene: &Scene, len: usize) {
    scene.browser.until(&format!(
        "document.querySelectorAll('.list tbody tr').length === {len}"
    ));
}

fn hash(scene: &Scene) -> String {
    let hash = scene.browser.run("return location.hash", &[]);
    hash.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_stands_in_the_address_and_a_reload_and_back_keep_it() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "runs");
    scene.browser.until_shown("order-1");
    follow(&scene, "parked");
    until_len(&scene, 1);
    assert_eq!(ids(&scene), ["broken"]);
    assert!(hash(&scene).contains("status=parked"), "{}", hash(&scene));
    scene.browser.run("location.reload()", &[]);
    scene.browser.until_shown("broken");
    until_len(&scene, 1);
    scene.browser.run("history.back()", &[]);
    scene.browser.until_shown("order-of-parcel-7");

    scene.browser.run(
        "const select = document.querySelector('#filter-workflow');
         select.value = 'order';
         select.dispatchEvent(new Event('change', { bubbles: true }));",
        &[],
    );
    until_len(&scene, 2);
    scene
        .browser
        .run("document.querySelector('#filter-prefix').focus()", &[]);
    scene.browser.press("order-of");
    scene.browser.press(crate::driver::ENTER);
    until_len(&scene, 1);
    assert_eq!(ids(&scene), ["order-of-parcel-7"]);
    assert!(hash(&scene).contains("workflow=order"), "{}", hash(&scene));
    scene.browser.run("history.back()", &[]);
    until_len(&scene, 2);
    let shown = "return [document.querySelector('#filter-workflow').value, document.querySelector('#filter-prefix').value]";
    assert_eq!(scene.browser.run(shown, &[]), json!(["order", ""]));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_pages_are_reached_and_newer_ones_again_also_after_a_reload() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(120).await;
    scene.open("/millrun", "runs?prefix=many-");
    until_len(&scene, 50);
    let first = ids(&scene);
    follow(&scene, "Older");
    scene.browser.until(&format!(
        "document.querySelector('.list td').innerText !== {}",
        json!(first[0])
    ));
    let second = ids(&scene);
    follow(&scene, "Older");
    until_len(&scene, 20);
    let mut all: Vec<_> = [first.clone(), second.clone(), ids(&scene)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 120, "each is on one page");
    scene.browser.run("location.reload()", &[]);
    until_len(&scene, 20);
    follow(&scene, "Newer");
    until_len(&scene, 50);
    assert_eq!(ids(&scene), second);
    follow(&scene, "Newest");
    scene.browser.until(&format!(
        "document.querySelector('.list td').innerText === {}",
        json!(first[0])
    ));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_and_their_counts_change_while_they_are_looked_at() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(3).await;
    scene.open("/millrun", "runs?prefix=many-&status=running&workflow=order");
    until_len(&scene, 3);
    scene.browser.until_shown("running 5");
    scene.world.signal("many-1", 7).await;
    until_len(&scene, 2);
    scene.browser.until_shown("running 4");
    scene.browser.until_shown("completed 1");
    scene.world.order("many-9").await;
    until_len(&scene, 3);
    assert_eq!(ids(&scene)[0], "many-9", "newest first");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tabs_that_look_at_runs_share_one_stream_of_changes() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "runs?prefix=order-");
    until_len(&scene, 2);
    let other = scene.browser.tab();
    scene.open("/millrun", "runs?prefix=many-");
    scene.browser.until_shown("There are none here.");
    scene.world.many(1).await;
    until_len(&scene, 1);
    // Each tab leads when it is turned to, and the one before lets go of its stream.
    let streamed = scene.world.streamed();
    assert!((1..=2).contains(&streamed), "{streamed}");
    scene.browser.turn_to(&other);
    scene.world.order("order-2").await;
    until_len(&scene, 1);
    scene.is_quiet();
}

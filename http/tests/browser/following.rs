//! What led to a run and what came of it, on its page: asked for when it is opened, and followed link by link.

use serde_json::json;

use crate::Scene;
use crate::accessible::serious;

/// Opens the first list of links whose label begins with `words`.
fn open(scene: &Scene, words: &str) {
    let open = "const found = [...document.querySelectorAll('.trace summary')].find(one => one.getAttribute('aria-label').startsWith(arguments[0]));
        found.focus(); found.click();";
    scene.browser.run(open, &[json!(words)]);
}

fn is_traced(scene: &Scene) -> serde_json::Value {
    let asked =
        "return performance.getEntriesByType('resource').filter(one => one.name.includes('/trace?')).length";
    scene.browser.run(asked, &[])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_led_to_a_run_and_came_of_it_is_followed_from_its_page_and_nothing_in_it_is_markup() {
    let Some(scene) = Scene::new().await else { return };
    let child = "<img id=injected src=x onerror=alert(1)>";
    scene.world.parcel("parcel-8", child).await;
    scene.open("/millrun", "instances/parcel-8");
    scene.browser.until_shown("Look for it");
    scene.browser.until_shown("waits for the child");
    assert_eq!(is_traced(&scene), json!(0), "nobody has asked for it");
    open(&scene, "Look for it");
    scene.browser.until_shown("outside");
    scene.browser.until_shown("child order");
    open(&scene, "Follow child order");
    scene.browser.until_shown("activity charge");
    assert_eq!(is_traced(&scene), json!(2));
    let injected = "return document.querySelectorAll('#injected').length";
    assert_eq!(scene.browser.run(injected, &[]), json!(0));
    for (width, is_dark) in [(1_440, false), (390, true)] {
        scene.browser.look(width, is_dark);
        let is_wider = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(scene.browser.run(is_wider, &[]), json!(false), "at {width}");
        if let Some(found) = serious(&scene) {
            assert_eq!(found, json!([]), "at {width}");
        }
    }
    // The link leads to the page of the child, from which the way leads back.
    let link = "[...document.querySelectorAll('.trace a')].find(one => one.textContent.includes('injected')).click()";
    scene.browser.run(link, &[]);
    scene.browser.until_shown("waits for the signal paid");
    open(&scene, "Look for it");
    scene.browser.until(
        "[...document.querySelectorAll('.trace a')].some(one => one.textContent.startsWith('operation '))",
    );
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_led_to_a_record_is_followed_to_its_run() {
    let Some(scene) = Scene::new().await else { return };
    let run = scene.world.placed_by_run(7).await;
    scene.open("/millrun", "records/orders.placed");
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 3");
    scene
        .browser
        .run("document.querySelector('.rows .row').click()", &[]);
    scene.browser.until_shown("What led to it, and what came of it");
    open(&scene, "What led to it");
    scene.browser.until_shown("subscription billing");
    if let Some(found) = serious(&scene) {
        assert_eq!(found, json!([]));
    }
    let cause = "[...document.querySelectorAll('.trace a')].find(one => one.textContent.startsWith('operation ')).click()";
    scene.browser.run(cause, &[]);
    scene.browser.until_shown("placing-1");
    let at = scene.browser.run("return location.hash", &[]);
    assert_eq!(at, json!(format!("#/run/{run}")));
    open(&scene, "Look for it");
    scene.browser.until_shown("record 3 of orders.placed");
    scene.is_quiet();
}

//! What happens is shown while it happens, and asked for once per browser.

use serde_json::json;

use crate::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_is_shown_without_a_reload() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "runs");
    scene.browser.until_shown("order-1");
    scene.world.order("another-order").await;
    scene.browser.until_shown("another-order");
    scene.open("/millrun", "instances/another-order");
    scene.browser.until_shown("● running");
    scene.world.signal("another-order", 7).await;
    scene.browser.until_shown("✓ completed");
    scene.browser.until_shown("SignalReceived");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_tabs_have_one_reader_and_all_of_them_are_live() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "instances/order-1");
    let mut tabs = Vec::new();
    for _ in 0..7 {
        tabs.push(scene.browser.tab());
        scene.open("/millrun", "");
        scene.browser.until_shown("Live runs");
    }
    // Each tab is told five times more; one of them asks.
    let before = scene.world.asked();
    scene.browser.run_async(
        "const { live } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'live.js'));
         let left = 5;
         await new Promise(done => live.on(what => what === 'stats' && --left === 0 && done()));",
        &[],
    );
    let asked = scene.world.asked() - before;
    assert!((4..=8).contains(&asked), "{asked}");
    for tab in &tabs {
        scene.browser.turn_to(tab);
        let figures = scene
            .browser
            .run("return document.querySelectorAll('.tile').length", &[]);
        assert!(figures.as_u64() > Some(5), "{figures}");
    }
    // A tab that has to ask by itself is not held up by the streams of others.
    scene.open("/millrun", "instances/parcel-7");
    scene.browser.until_shown("waits for the child");
    scene.world.signal("order-of-parcel-7", 3).await;
    scene.browser.until_shown("✓ completed");
    assert_eq!(scene.browser.run("return document.hidden", &[]), json!(false));
    scene.is_quiet();
}

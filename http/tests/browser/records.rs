//! Durable topics in the page: their latest records and those that come, and how far behind their subscriptions are.

use serde_json::json;

use crate::Scene;
use crate::driver::ENTER;

/// Chooses the record in the first row, which is the latest.
fn choose_latest(scene: &Scene) {
    scene
        .browser
        .run("document.querySelector('.rows .row').click()", &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_there_and_those_that_come_are_shown_with_their_cause_and_payload() {
    let Some(scene) = Scene::durable().await else {
        return;
    };
    scene.world.place(3..=3).await;
    scene.open("/millrun", "topics");
    scene.browser.until_shown("orders.placed");
    scene.browser.run(
        "[...document.querySelectorAll('td a')].find(one => one.textContent === 'orders.placed').click()",
        &[],
    );
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 3");
    let first = "return document.querySelector('.rows .row .gist').textContent";
    assert_eq!(scene.browser.run(first, &[]), json!("3"), "newest first");

    // What a run publishes comes without a reload, and leads to the run.
    let run = scene.world.placed_by_run(u64::MAX).await;
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 4");
    choose_latest(&scene);
    scene.browser.until_shown("Caused by");
    let payload = "return document.querySelector('.detail code.value').textContent";
    assert_eq!(scene.browser.run(payload, &[]), json!("18446744073709551615"));
    let key =
        "return [...document.querySelectorAll('.detail dd')].some(one => one.textContent === 'placing-1')";
    assert_eq!(scene.browser.run(key, &[]), json!(true));
    scene
        .browser
        .run("document.querySelector('.detail a').click()", &[]);
    scene.browser.until_shown("placing-1");
    let at = scene.browser.run("return location.hash", &[]);
    assert_eq!(at, json!(format!("#/run/{run}")));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_far_behind_a_subscription_is_is_told_and_goes_on_at_390_pixels() {
    let Some(scene) = Scene::new().await else { return };
    scene.browser.look(390, false);
    scene.world.place(3..=5).await;
    scene.open("/millrun", "records/orders.placed");
    let cell = |name: &str, text: &str| {
        scene.browser.until(&format!(
            "[...document.querySelectorAll('td[data-of=\"{name}\"]')].some(one => one.textContent.trim() === '{text}')"
        ));
    };
    cell("Name", "billing");
    cell("Lag", "5");
    let taken = scene.world.billing.next().await.unwrap();
    cell("Given", "1");
    taken.ack().unwrap().await.unwrap();
    cell("Lag", "4");
    let back = scene.world.billing.next().await.unwrap();
    back.send_back(std::time::Duration::from_secs(600), "no way")
        .unwrap()
        .await
        .unwrap();
    cell("Returned", "1");
    let is_wider = "return document.documentElement.scrollWidth > innerWidth";
    assert_eq!(scene.browser.run(is_wider, &[]), json!(false));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_published_with_the_keyboard_and_once_per_id() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "records/orders.placed");
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 2");
    for _ in 0..2 {
        scene.browser.run(
            "[...document.querySelectorAll('button')].find(one => one.textContent === 'Publish…').click()",
            &[],
        );
        scene.browser.until("document.querySelector('dialog #field-id')");
        scene
            .browser
            .run("document.querySelector('#field-value').value = '7'", &[]);
        scene
            .browser
            .run("document.querySelector('#field-id').focus()", &[]);
        scene.browser.press("event-1");
        scene.browser.press(ENTER);
        scene.browser.until("!document.querySelector('dialog')");
    }
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 3");
    scene.browser.until_shown("3 records,");
    scene.is_quiet();
}

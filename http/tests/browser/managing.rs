//! Durable topics are purged and deleted from the page, and their subscriptions removed, each after a question.

use millrun::topics::{SubscriptionLost, SubscriptionReadError};
use serde_json::json;

use crate::Scene;
use crate::accessible::serious;
use crate::acting::click;
use crate::driver::{ENTER, ESCAPE};
use crate::world::READING;

/// Clicks the button with this label for those who do not see.
fn click_labelled(scene: &Scene, label: &str) {
    let found = format!("document.querySelector('button[aria-label={}]')", json!(label));
    scene.browser.until(&format!("!!{found}"));
    scene
        .browser
        .run(&format!("{found}.focus(); {found}.click()"), &[]);
    scene.browser.until("document.querySelector('dialog[open]')");
}

/// Waits until the row of this topic has `records`; `None` is no row.
fn until_row(scene: &Scene, topic: &str, records: Option<&str>) {
    let row = format!(
        "[...document.querySelectorAll('[aria-labelledby=durable] tbody tr')].find(row => row.querySelector('a').textContent === '{topic}')"
    );
    scene.browser.until(&match records {
        Some(len) => format!("{row}.querySelector('[data-of=Records]').textContent === '{len}'"),
        None => format!("document.querySelector('[aria-labelledby=durable]') && !{row}"),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_purged_and_another_deleted_when_the_question_was_answered() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "topics");
    until_row(&scene, "orders.placed", Some("2"));
    until_row(&scene, "audit", Some("0"));
    for (width, is_dark) in [(1_440, false), (390, true)] {
        scene.browser.look(width, is_dark);
        let is_wider = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(scene.browser.run(is_wider, &[]), json!(false), "at {width}");
        click_labelled(&scene, "Purge… orders.placed");
        scene.browser.until_shown("It has 2 records.");
        if let Some(found) = serious(&scene) {
            assert_eq!(found, json!([]), "at {width}");
        }
        // Nothing is done without an answer.
        scene.browser.press(ESCAPE);
        scene.browser.until("!document.querySelector('dialog')");
    }
    click_labelled(&scene, "Purge… orders.placed");
    scene.browser.until("document.activeElement.name === 'before'");
    scene.browser.press("2");
    scene.browser.press(ENTER);
    until_row(&scene, "orders.placed", Some("1"));
    click_labelled(&scene, "Purge… orders.placed");
    click(&scene, "Purge");
    until_row(&scene, "orders.placed", Some("0"));

    click_labelled(&scene, "Delete… audit");
    scene.browser.until_shown("all of its subscriptions go with it");
    scene.browser.press(ESCAPE);
    scene.browser.until("!document.querySelector('dialog')");
    until_row(&scene, "audit", Some("0"));
    click_labelled(&scene, "Delete… audit");
    click(&scene, "Delete");
    until_row(&scene, "audit", None);
    until_row(&scene, "orders.placed", Some("0"));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_a_topic_forgets_what_was_purged_and_a_subscription_that_was_removed() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.place(3..=5).await;
    scene.open("/millrun", "records/orders.placed");
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 5");
    click_labelled(&scene, "Purge… orders.placed");
    scene
        .browser
        .run("document.querySelector('#field-before').value = '4'", &[]);
    click(&scene, "Purge");
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 2");
    scene.browser.until_shown("2 records,");
    // What comes afterwards is shown as before.
    scene.world.place(6..=6).await;
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 3");

    click_labelled(&scene, "Remove… billing");
    scene
        .browser
        .until_shown("Its place in orders.placed is forgotten");
    click(&scene, "Remove");
    scene.browser.until_shown("It has none.");
    let ended = loop {
        // The purge was told first.
        if let Err(SubscriptionReadError::Lost(lost)) = scene.world.billing.next().await {
            break lost;
        }
    };
    assert!(matches!(ended, SubscriptionLost::Deleted), "{ended}");
    scene.is_quiet();

    // With its topic the page goes.
    click_labelled(&scene, "Delete… orders.placed");
    click(&scene, "Delete");
    scene.browser.until("location.hash === '#/topics'");
    until_row(&scene, "orders.placed", None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undelivered_records_are_sent_back_one_by_one_and_all() {
    let Some(scene) = Scene::new().await else { return };
    let shipping = scene.world.refuse(1).await;
    scene.open("/millrun", "records/orders.placed");
    scene.browser.until_shown("1 key waits");
    scene.open("/millrun", "records/refused");
    scene
        .browser
        .until("document.querySelectorAll('.rows .row').length === 1");
    click(&scene, "Send all back…");
    click(&scene, "Send back");
    scene.browser.until("!document.querySelector('dialog')");
    // The key goes on: the second order, and behind it the first again.
    for expected in [2, 1] {
        let given = shipping.next().await.unwrap();
        assert_eq!(*given.payload(), expected);
        given.ack().unwrap().await.unwrap();
    }
    scene
        .browser
        .run("document.querySelector('.rows .row').click()", &[]);
    click(&scene, "Send back…");
    click(&scene, "Send back");
    scene.browser.until("!document.querySelector('dialog')");
    assert_eq!(shipping.status().lag, 0, "it is not sent again");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_read_is_offered_nothing_of_it() {
    let Some(scene) = Scene::new().await else { return };
    for part in ["topics", "records/orders.placed"] {
        scene.open(READING, part);
        scene.browser.until_shown("orders.placed");
        scene
            .browser
            .until("document.querySelector('table.list tbody tr')");
        let offered = "return document.querySelectorAll('#page button').length";
        assert_eq!(scene.browser.run(offered, &[]), json!(0), "{part}");
    }
    scene.is_quiet();
}

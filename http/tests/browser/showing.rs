//! What each part of the page shows, under each prefix.

use serde_json::json;

use crate::Scene;
use crate::world::{GUARDED, PREFIXES, READING, TOKEN};

/// Each part of the page, and a text that it shows once it has asked the program.
pub(crate) const PARTS: &[(&str, &str)] = &[
    ("", "Runs per second"),
    ("runs", "order-1"),
    ("runs?status=completed", "a b/c?d#e%"),
    (
        "runs?workflow=order&status=running&prefix=order-",
        "order-of-parcel-7",
    ),
    ("bulk", "for-nobody"),
    ("bulk/for-nobody", "1 passed over"),
    ("instances/order-1", "waits for the signal paid"),
    ("instances/parcel-7", "waits for the child order-of-parcel-7"),
    ("instances/retrying", "the bank does not answer"),
    ("instances/broken", "this code has a mistake"),
    ("instances/long", "ValueRecorded"),
    ("instances/a%20b%2Fc%3Fd%23e%25", "completed"),
    ("topics", "orders.shipped"),
    ("topics/orders.shipped", "Nothing has been published yet"),
    ("topics?name=audit", "10 records"),
    ("records/orders.placed", "billing"),
    ("records/audit", "does not expose what this topic carries"),
    ("queues", "ask-the-bank"),
    ("parts", "journal"),
];

/// The most nodes that a page may have.
const NODES_MAX: u64 = 2_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_part_is_shown_under_each_prefix_without_a_message() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.signal("order-1", 1).await;
    scene.world.order_anew("order-1").await;
    for prefix in PREFIXES {
        for (part, text) in PARTS {
            scene.open(prefix, part);
            scene.browser.until_shown(text);
            let nodes = scene
                .browser
                .run("return document.querySelectorAll('*').length", &[]);
            assert!(nodes.as_u64().unwrap() <= NODES_MAX, "{part}: {nodes}");
            let is_wider = "return document.documentElement.scrollWidth > innerWidth";
            assert_eq!(scene.browser.run(is_wider, &[]), json!(false), "{part}");
        }
    }
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_root_leads_to_the_page() {
    let Some(scene) = Scene::new().await else { return };
    for prefix in ["/", "/millrun"] {
        scene.browser.go(&format!("{}{prefix}", scene.world.address));
        scene.browser.until_shown("Live runs");
    }
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_only_read_sees_no_buttons_that_change_anything() {
    let Some(scene) = Scene::new().await else { return };
    scene.open(READING, "instances/order-1");
    scene.browser.until_shown("waits for the signal paid");
    // An output stream is read, so its button is there.
    let buttons = "return [...document.querySelectorAll('#page button')].map(one => one.textContent)";
    assert_eq!(scene.browser.run(buttons, &[]), json!(["Follow", "Look again"]));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_asked_for_and_traded() {
    let Some(scene) = Scene::new().await else { return };
    scene.open(GUARDED, "instances/order-1");
    scene.browser.until_shown("Sign in");
    // The refusal of the request for the role is shown on the browser's console as any failed request is.
    scene.browser.messages();
    scene.browser.run("document.querySelector('#token').focus()", &[]);
    scene.browser.press(TOKEN);
    scene.browser.press(crate::driver::ENTER);
    scene.browser.until_shown("waits for the signal paid");
    // The cookie is that of the whole page, and scripts do not see it.
    scene.open(GUARDED, "instances/order-1");
    scene.browser.until_shown("waits for the signal paid");
    assert_eq!(scene.browser.run("return document.cookie", &[]), json!(""));
    scene.is_quiet();
}

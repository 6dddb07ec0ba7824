//! What an operator does with the page.

use serde_json::json;

use crate::Scene;
use crate::driver::{DOWN, END, ENTER, ESCAPE, TAB};

/// A button of the page by its text.
pub(crate) fn click(scene: &Scene, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('button')].find(one => one.textContent.trim() === {} && !one.disabled)",
        json!(text)
    );
    scene.browser.until(&format!("!!{found}"));
    scene.browser.run(&format!("{found}.click()"), &[]);
}

/// Presses Tab until what has the focus shows this text.
pub(crate) fn tab_to(scene: &Scene, text: &str) {
    for _ in 0..60 {
        let focused = scene.browser.run(
            "const at = document.activeElement;
             return at.matches('a, button, input, summary') ? at.textContent.trim() || at.name : ''",
            &[],
        );
        if focused.as_str().unwrap().contains(text) {
            return;
        }
        scene.browser.press(TAB);
    }
    panic!("{text} does not get the focus");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_sent_from_the_page_completes_a_run() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "instances/order-1");
    click(&scene, "Send paid…");
    scene.browser.run(
        "document.querySelector('#field-value').value = '18446744073709551615'",
        &[],
    );
    click(&scene, "Send");
    scene.browser.until_shown("completed");
    scene.browser.until_shown("18446744073709551615");
    assert_eq!(scene.world.result("order-1").await, u64::MAX);
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_is_commanded_from_the_page_and_its_answer_shown() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.put("a/1 ü").await;
    scene.open("/millrun", "instances/shelf%2Fa%2F1%20%C3%BC");
    click(&scene, "Command…");
    scene
        .browser
        .run("document.querySelector('#field-input').value = '41'", &[]);
    click(&scene, "Command");
    scene.browser.until_shown("The answer of shelf/a/1 ü");
    scene.browser.until_shown("42");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_paused_resumed_and_cancelled_with_buttons() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "instances/order-1");
    click(&scene, "Pause…");
    click(&scene, "Pause");
    scene.browser.until_shown("■ parked");
    click(&scene, "Resume…");
    click(&scene, "Resume");
    scene.browser.until_shown("● running");
    click(&scene, "Cancel…");
    click(&scene, "Cancel");
    scene.browser.until_shown("⊘ cancelled");
    click(&scene, "Start again with this input…");
    click(&scene, "Start");
    scene.browser.until_shown("● running");
    scene.browser.until_shown("1999");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_asked_and_updated() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "instances/order-1");
    click(&scene, "Update…");
    scene.browser.run(
        "document.querySelector('#field-input').value = '9007199254740993'",
        &[],
    );
    click(&scene, "Update");
    scene.browser.until_shown("The answer of order-1");
    scene.browser.until_shown("9007199254742992");
    click(&scene, "Close");
    click(&scene, "Query…");
    click(&scene, "Ask");
    scene.browser.until_shown("9007199254742992");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_is_tailed() {
    let Some(scene) = Scene::new().await else {
        return;
    };
    scene.open("/millrun", "topics");
    scene.browser.until_shown("orders.shipped");
    scene.browser.run(
        "[...document.querySelectorAll('td a')].find(one => one.textContent === 'orders.shipped').click()",
        &[],
    );
    click(&scene, "Publish…");
    scene.browser.run(
        "document.querySelector('#field-value').value = '\"by hand\"'",
        &[],
    );
    click(&scene, "Publish");
    scene.browser.until_shown("by hand");
    scene.world.signal("order-1", 1).await;
    scene.browser.until_shown("order-1");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_json_is_refused_before_it_is_sent() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("", "instances/order-1");
    click(&scene, "Signal…");
    scene
        .browser
        .run("document.querySelector('#field-value').value = '{\"a\":'", &[]);
    click(&scene, "Send");
    scene.browser.until_shown("this is no JSON");
    scene.browser.press(ESCAPE);
    scene.browser.until("!document.querySelector('dialog')");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_is_done_with_the_keyboard_alone() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "");
    tab_to(&scene, "Runs");
    scene.browser.press(ENTER);
    scene.browser.until_shown("order-1");
    tab_to(&scene, "order-1");
    scene.browser.press(ENTER);
    scene.browser.until_shown("Send paid…");
    tab_to(&scene, "Send paid…");
    scene.browser.press(ENTER);
    scene.browser.until("document.activeElement.name === 'name'");
    scene.browser.press(TAB);
    scene.browser.press("42");
    scene.browser.press(TAB);
    scene.browser.press(TAB);
    scene.browser.press(ENTER);
    scene.browser.until_shown("completed");
    assert_eq!(scene.world.result("order-1").await, 42);
    // The list of events is one stop, and arrows move in it.
    scene
        .browser
        .run("document.querySelector('.events').focus()", &[]);
    scene.browser.press(DOWN);
    scene
        .browser
        .until("document.querySelector('.detail').innerText.includes('1 · Started')");
    scene.browser.press(END);
    scene
        .browser
        .until("document.querySelector('.detail').innerText.includes('Completed')");
    scene.is_quiet();
}

//! What activities of a run send while they work, on its page.

use std::time::Duration;

use serde_json::json;

use crate::Scene;
use crate::accessible::serious;
use crate::acting::click;
use crate::driver::ENTER;

/// When a test that waits for a connection fails rather than hangs.
const OPEN_WITHIN: Duration = Duration::from_secs(60);

/// What stands in the rows of the output, newest first.
fn until_rows(scene: &Scene, expected: &[&str]) {
    let rows = "[...document.querySelectorAll('.output .row')].map(row => [...row.children].map(one => one.textContent).join('|')).join('\\n')";
    scene
        .browser
        .until(&format!("{rows} === {}", json!(expected.join("\n"))));
}

/// Waits until the program has this many streams of output open.
async fn until_open(scene: &Scene, len: usize) {
    let opened = async {
        while scene.world.open_outputs() != len {
            tokio::task::yield_now().await;
        }
    };
    let opened = tokio::time::timeout(OPEN_WITHIN, opened).await;
    assert!(
        opened.is_ok(),
        "{} are open, not {len}",
        scene.world.open_outputs()
    );
}

const MARKUP: &str = "<img/id=injected/src=x/onerror=alert(1)>";
const AGAIN: &str =
    "operation 1, attempt 2|began|the step is tried again: what earlier attempts have sent led to nothing";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_and_attempts_are_shown_as_they_come_and_nothing_is_read_when_the_panel_is_left() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.answer("answer-1", &format!("so {MARKUP}")).await;
    scene.open("/millrun", "instances/answer-1");
    scene.browser.until_shown("Choose a stream");
    assert_eq!(scene.world.open_outputs(), 0, "nobody has asked for it");
    scene.browser.until_shown("in memory, being sent");
    scene
        .browser
        .run("document.querySelector('#stream-name').focus()", &[]);
    scene.browser.press("tokens");
    scene.browser.press(ENTER);
    let before = [
        "operation 1, attempt 2||\"so\"",
        AGAIN,
        "operation 1, attempt 1|failed|",
        "operation 1, attempt 1||\"so\"",
        "operation 1, attempt 1|began|",
    ];
    until_rows(&scene, &before);
    until_open(&scene, 1).await;

    // Left, and named again by the address, as after a reload.
    click(&scene, "Leave");
    scene.browser.until_shown("Choose a stream");
    until_open(&scene, 0).await;
    // Chosen from the list.
    click(&scene, "tokens");
    until_rows(&scene, &before);
    click(&scene, "Leave");
    until_open(&scene, 0).await;
    scene.open("/millrun", "instances/answer-1?stream=tokens");
    until_rows(&scene, &before);
    for (width, is_dark) in [(1_440, false), (390, true)] {
        scene.browser.look(width, is_dark);
        let is_wider = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(scene.browser.run(is_wider, &[]), json!(false), "at {width}");
        if let Some(found) = serious(&scene) {
            assert_eq!(found, json!([]), "at {width}");
        }
    }
    scene.browser.run("location.hash = '#/queues'", &[]);
    scene.browser.until_shown("ask-the-bank");
    until_open(&scene, 0).await;

    // What comes is shown without a reload, and is no markup.
    scene.open("/millrun", "instances/answer-1?stream=tokens");
    until_rows(&scene, &before);
    scene.world.go_on();
    let chunk = format!("operation 1, attempt 2||\"{MARKUP}\"");
    let mut after = vec!["operation 1, attempt 2|succeeded|", &chunk];
    after.extend(before);
    until_rows(&scene, &after);
    scene.browser.until_shown("3 chunks of 2 attempts");
    scene.browser.until_shown("It has ended.");
    until_open(&scene, 0).await;
    let choose = "document.querySelectorAll('.output .row')[1].click()";
    scene.browser.run(choose, &[]);
    scene
        .browser
        .until("document.querySelector('.detail code.value').textContent.includes('injected')");
    let injected = "return document.querySelectorAll('#injected').length";
    assert_eq!(scene.browser.run(injected, &[]), json!(0));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_long_output_the_latest_thousand_items_are_kept() {
    let Some(scene) = Scene::new().await else { return };
    let words: Vec<_> = (0..1_500).map(|number| number.to_string()).collect();
    scene.world.answer("answer-1", &words.join(" ")).await;
    scene.open("/millrun", "instances/answer-1?stream=tokens");
    scene.browser.until_shown("2 chunks of 2 attempts");
    scene.world.go_on();
    scene.browser.until_shown("1,501 chunks of 2 attempts");
    scene
        .browser
        .until("document.querySelector('.output .row [class=gist]').textContent === ''");
    let kept = "return document.querySelector('.output .row').ariaSetSize";
    assert_eq!(scene.browser.run(kept, &[]), json!("1000"));
    scene.is_quiet();
}

//! One thing is done to all runs that the filter of the page finds.

use std::fs;
use std::path::Path;

use millrun::operating::{RunSearch, RunStatus};

use crate::Scene;
use crate::acting::{click, tab_to};
use crate::driver::{ENTER, TAB};
use crate::world::READING;

const BUTTON: &str = "Do to all of these…";

fn many(status: RunStatus) -> RunSearch {
    RunSearch::new().id_prefix("many-").status(status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_filter_finds_is_counted_and_cancelled_with_its_progress_shown() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(12).await;
    scene.open("/millrun", "runs?prefix=many-&status=running");
    scene.browser.until_shown("many-11");
    click(&scene, BUTTON);
    scene.browser.until_shown("12 runs would be reached");
    click(&scene, "Cancel 12");
    scene
        .browser
        .until_shown("12 of 12: 12 done, 0 passed over, 0 failed");
    scene.browser.until_shown("There are none here.");
    assert_eq!(scene.world.found(many(RunStatus::Cancelled)).await, 12);
    assert_eq!(
        scene
            .world
            .found(RunSearch::new().status(RunStatus::Running))
            .await,
        5,
        "no others"
    );
    scene
        .browser
        .run("document.querySelector('.bulk a').click()", &[]);
    scene.browser.until_shown("100 a second");
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_reaches_each_run_to_the_digit() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(3).await;
    scene.open("/millrun", "runs?prefix=many-");
    click(&scene, BUTTON);
    scene.browser.until_shown("3 runs would be reached");
    scene.browser.run(
        "const select = document.querySelector('#bulk-action');
         select.value = 'signal';
         select.dispatchEvent(new Event('change', { bubbles: true }));",
        &[],
    );
    scene.browser.until("document.querySelector('#bulk-signal')");
    scene
        .browser
        .run("document.querySelector('#bulk-signal').value = 'paid'", &[]);
    scene.browser.run(
        "document.querySelector('#bulk-value').value = '18446744073709551615'",
        &[],
    );
    click(&scene, "Signal 3");
    for number in 0..3 {
        assert_eq!(scene.world.result(&format!("many-{number}")).await, u64::MAX);
    }
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_that_runs_is_stopped_from_the_page() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(30).await;
    scene.open("/millrun", "runs?prefix=many-&status=running");
    click(&scene, BUTTON);
    scene.browser.until_shown("30 runs would be reached");
    scene
        .browser
        .run("document.querySelector('#bulk-per_second').value = '1'", &[]);
    click(&scene, "Cancel 30");
    click(&scene, "Stop…");
    click(&scene, "Stop");
    scene.browser.until_shown("⊘ cancelled");
    assert!(scene.world.found(many(RunStatus::Running)).await > 0);
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_is_begun_with_the_keyboard_alone_and_not_by_readers() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(2).await;
    scene.open("/millrun", "runs?prefix=many-");
    scene.browser.until_shown("many-1");
    tab_to(&scene, BUTTON);
    scene.browser.press(ENTER);
    scene.browser.until("document.activeElement.id === 'bulk-action'");
    scene.browser.press("T");
    scene.browser.until_shown("Ends them without asking their code.");
    scene.browser.until_shown("2 runs would be reached");
    scene.browser.press(TAB);
    scene.browser.press("the shop has closed");
    tab_to(&scene, "Terminate");
    scene.browser.press(ENTER);
    scene.browser.until_shown("2 done");
    assert_eq!(scene.world.found(many(RunStatus::Terminated)).await, 2);
    scene.open(READING, "runs");
    scene.browser.until_shown("order-1");
    let buttons = scene.browser.run(
        "return [...document.querySelectorAll('#page button')].map(one => one.innerText)",
        &[],
    );
    assert_eq!(buttons, serde_json::json!(["Find"]));
    scene.is_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_of_runs_that_are_too_many_to_be_counted_in_time_is_begun_all_the_same() {
    let Some(scene) = Scene::new().await else { return };
    scene.world.many(2).await;
    scene.open("/millrun", "runs?prefix=many-");
    scene.browser.until_shown("many-1");
    scene.browser.run(
        "const real = window.fetch;
         const problem = { type: 'urn:millrun:problem:timeout', title: 'too long', detail: 'it was', status: 503 };
         window.fetch = (url, init) => init?.body?.includes('dry_run')
           ? Promise.resolve(new Response(JSON.stringify(problem), { status: 503 }))
           : real(url, init);",
        &[],
    );
    click(&scene, BUTTON);
    scene.browser.until_shown("too many to be counted in time");
    click(&scene, "Cancel");
    scene.browser.until_shown("2 of 2: 2 done");
    scene.is_quiet();
}

/// Leaves pictures of the dialog and of a bulk that runs, to be looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dialog_and_the_progress_fit_a_phone_and_a_screen() {
    let Some(scene) = Scene::new().await else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&folder).unwrap();
    scene.world.many(60).await;
    for (number, (width, is_dark)) in [(1_440, false), (390, false), (390, true), (1_440, true)]
        .into_iter()
        .enumerate()
    {
        scene.browser.look(width, is_dark);
        let scheme = if is_dark { "dark" } else { "light" };
        scene.open(
            "/millrun",
            &format!("runs?status=running&prefix=many-{}", number + 1),
        );
        click(&scene, BUTTON);
        scene.browser.until_shown("would be reached");
        let picture = |what: &str| {
            scene
                .browser
                .picture(&folder.join(format!("bulk-{what}-{width}-{scheme}.png")))
        };
        picture("dialog");
        let fits =
            "const { left, right, top, bottom } = document.querySelector('dialog').getBoundingClientRect();
                    return left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight";
        assert_eq!(scene.browser.run(fits, &[]), serde_json::json!(true), "{width}");
        scene
            .browser
            .run("document.querySelector('#bulk-per_second').value = '1'", &[]);
        scene
            .browser
            .run("document.querySelector('dialog .danger').click()", &[]);
        scene.browser.until_shown("Stop…");
        picture("progress");
        let is_wider = "return document.documentElement.scrollWidth > innerWidth";
        assert_eq!(
            scene.browser.run(is_wider, &[]),
            serde_json::json!(false),
            "{width}"
        );
    }
    scene.is_quiet();
}

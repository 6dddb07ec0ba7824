//! What axe-core finds, at two widths, light and dark. It also leaves pictures, to be looked at.

use std::path::Path;
use std::{env, fs};

use serde_json::{Value, json};

use crate::Scene;
use crate::driver::skipped;
use crate::showing::PARTS;

/// The text of axe-core; without it that is said.
fn axe() -> Option<String> {
    let Ok(Ok(axe)) = env::var("MILLRUN_AXE").map(fs::read_to_string) else {
        skipped("MILLRUN_AXE names no file with axe-core");
        return None;
    };
    Some(axe)
}

/// What axe-core finds serious on the page as it stands there.
fn found_by(scene: &Scene, axe: &str) -> Value {
    scene.browser.run(axe, &[]);
    scene.browser.run_async(
        "const { violations } = await axe.run();
         return violations.filter(one => ['serious', 'critical'].includes(one.impact))
           .map(one => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(' | ')}`);",
        &[],
    )
}

/// The same for other tests; `None` without axe-core.
pub(crate) fn serious(scene: &Scene) -> Option<Value> {
    axe().map(|axe| found_by(scene, &axe))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn axe_finds_nothing_serious() {
    let Some(scene) = Scene::new().await else { return };
    let Some(axe) = axe() else { return };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&folder).unwrap();
    for (width, is_dark) in [(1_440, false), (390, true), (390, false), (1_440, true)] {
        scene.browser.look(width, is_dark);
        for (part, text) in PARTS {
            scene.open("/millrun", part);
            scene.browser.until_shown(text);
            let scheme = if is_dark { "dark" } else { "light" };
            let name = part.replace(|char: char| !char.is_ascii_alphanumeric(), "-");
            scene
                .browser
                .picture(&folder.join(format!("page-{name}-{width}-{scheme}.png")));
            assert_eq!(found_by(&scene, &axe), json!([]), "{part} at {width}, {scheme}");
        }
    }
    scene.is_quiet();
}

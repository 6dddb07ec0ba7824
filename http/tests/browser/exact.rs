//! Values are shown as they are, to the digit.

use serde_json::json;

use crate::Scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_is_read_and_shown_without_loss() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("", "");
    let exact = "const { parse, pretty, Payload } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'exact.js'));";
    let read = scene.browser.run_async(
        &format!(
            r#"{exact}
            const all = parse(String.raw`{{"n":-1.5e3,"big":18446744073709551615,"text":"a\"\\\u00e4\n","list":[true,false,null,[],{{}}],
                "payload":{{"value":{{"2":1,"1":123456789012345678901234567890.50}}}},"signals":[{{"name":"x","value":{{"value":{{"value":7}}}}}}]}}`);
            const refused = ['', '{{', '[1,]', '{{"a" 1}}', '01x', '"a', 'nul', '1 2', '{{,}}'].filter(text => {{
                try {{ parse(text); return true; }} catch {{ return false; }}
            }});
            return [all.n, String(all.big), all.text, JSON.stringify(all.list), all.payload.text, all.signals[0].value.text, refused];"#
        ),
        &[],
    );
    assert_eq!(
        read,
        json!([
            -1500,
            "18446744073709551615",
            "a\"\\ä\n",
            "[true,false,null,[],{}]",
            r#"{"2":1,"1":123456789012345678901234567890.50}"#,
            r#"{"value":7}"#,
            []
        ])
    );
    let shown = scene.browser.run_async(
        &format!(
            r#"{exact}
            const cut = pretty('[' + '1,'.repeat(50) + '1]', 20);
            return [pretty('{{"a":[1,{{}},[]],"b":"x,{{y"}}', 1000).text, cut.cut, cut.text.length];"#
        ),
        &[],
    );
    assert_eq!(
        shown,
        json!([
            "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": \"x,{y\"\n}",
            true,
            21
        ])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_value_is_folded_and_big_numbers_are_exact() {
    let Some(scene) = Scene::new().await else { return };
    scene.open("/millrun", "instances/a%20b%2Fc%3Fd%23e%25");
    scene.browser.until_shown("completed");
    scene
        .browser
        .until("document.querySelectorAll('details.value').length >= 2");
    scene
        .browser
        .run("document.querySelector('details.value summary').click()", &[]);
    scene.browser.until_shown("18446744073709551615");
    scene.browser.until_shown("9007199254740993");
    scene.browser.until_shown("Download");
    scene.is_quiet();
}

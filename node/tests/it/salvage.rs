//! `millrun salvage`: a damaged store, and what the program says of it.

use crate::support::Place;

/// The demo's store with one flipped bit in the middle: what is whole is in a new store, on which the same
/// demo goes on.
#[test]
fn the_demo_goes_on_on_a_store_that_was_salvaged() {
    let place = Place::new();
    for number in 0..40 {
        place.write(format!("tree/{number}"), &[number; 100]);
    }
    let demo = |store| {
        let arguments = ["demo", "tree", "--store", store, "--manifest", "manifest"];
        place.run(&arguments).expect(0)
    };
    demo("store");
    let manifest = place.read("manifest");
    let sound = place.run(&["salvage", "store", "sound"]).expect(0);
    assert!(
        sound.out.contains("Nothing is known to be missing."),
        "{}",
        sound.out
    );

    let mut damaged = place.read("store");
    damaged[4_096..4_416].fill(0);
    place.write("damaged", &damaged);
    let refused = place
        .run(&["demo", "tree", "--store", "damaged", "--manifest", "manifest"])
        .expect(1);
    assert!(refused.err.contains("salvage"), "{}", refused.err);
    let salvaged = place.run(&["salvage", "damaged", "salvaged"]).expect(3);
    assert!(salvaged.out.contains("In the new store:"), "{}", salvaged.out);
    assert_eq!(place.read("damaged"), damaged, "it is not written to");
    demo("salvaged");
    assert_eq!(place.read("manifest"), manifest);

    let again = place.run(&["salvage", "damaged", "salvaged"]).expect(1);
    assert!(again.err.contains("salvaged exists"), "{}", again.err);
    assert!(
        place
            .run(&["salvage", "tree", "new"])
            .expect(1)
            .err
            .contains("could not be read")
    );
    assert!(
        place
            .run(&["salvage", "tree/3", "new"])
            .expect(1)
            .err
            .contains("no store")
    );
    assert!(!place.names().contains(&"new".to_owned()));
}

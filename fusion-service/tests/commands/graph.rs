//! `fusion-service graph`: pictures byte for byte, what is folded, where they go. Look at recorded pictures that
//! change.

use super::{folder, program};
use expect_test::expect_file;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = program().current_dir(folder()).arg("graph").args(arguments).output();
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn pictures_are_as_recorded() {
    let orders = ["golden/orders/app.adl", "--value=currencies=EUR"];
    let feeds = ["golden/feeds/app.adl", "--request", "golden/feeds/request.json"];
    // The pictures of the README.
    let sensors = ["../../integration-tests/applications/sensors/demo.sensors.Sensors.adl"];
    let cases: [(&str, Vec<&str>); 9] = [
        ("../../../docs/graphs/sensors-logical.svg", [&sensors[..], &["--view=logical"]].concat()),
        ("../../../docs/graphs/sensors-fused.svg", sensors.to_vec()),
        (
            "../../../docs/graphs/sensors-resize.svg",
            [&sensors[..], &["--fusion=manual:4", "--resize=Clean=4"]].concat(),
        ),
        ("orders-logical.mmd", [&orders[..], &["--view=logical", "--format=mermaid"]].concat()),
        ("orders-resize.svg", [&orders[..], &["--fusion=manual:4", "--resize=Paid=4"]].concat()),
        ("orders-resize.dot", [&orders[..], &["--fusion=manual:4", "--resize=Paid=4", "--format=dot"]].concat()),
        ("feeds-resize.svg", [&feeds[..], &["--format=svg"]].concat()),
        ("feeds-resize.mmd", [&feeds[..], &["--format=mermaid"]].concat()),
        ("feeds-physical.dot", vec![feeds[0], "--view=physical", "-o", "dot"]),
    ];
    for (name, arguments) in cases {
        let (status, text, problems) = run(&arguments);
        assert_eq!((status, problems.as_str()), (0, ""), "{name}");
        expect_file![folder().join("graphs").join(name)].assert_eq(&text);
    }
}

#[test]
fn what_is_too_much_is_folded() {
    let feeds = ["golden/feeds/app.adl", "--format=dot", "--width=Lane=20"];
    for (flags, expected) in [
        (&["--max-nodes=1000"][..], &["label=\"channel 19\\l\""][..]),
        (
            &["--max-nodes=60"],
            &["label=\"channel 0\\l\"", "label=\"channels 1–19\\n19 like channel 0\\n", "peripheries=2"],
        ),
        // Channels that are restarted are not like those that are added.
        (
            &["--max-nodes=60", "--resize=Lane=40"],
            &["label=\"~ channels 1–19\\n19 like channel 0\\n", "label=\"+ channels 21–39\\n19 like channel 20\\n"],
        ),
        (&["--max-nodes=60", "--view=physical"], &["label=\"channels 1–19\\n19 like channel 0\\n"]),
        // Not even that: clusters become nodes.
        (&["--max-nodes=4"], &["label=\"channel 0\\n"]),
        (&["--max-nodes=2"], &["label=\"Lane\\nparallel, width 20\\n"]),
    ] {
        let (status, text, problems) = run(&[&feeds[..], flags].concat());
        assert_eq!((status, problems.as_str()), (0, ""), "{flags:?}");
        for expected in expected {
            assert!(text.contains(expected), "{flags:?}: no {expected} in\n{text}");
        }
    }
}

#[test]
fn exit_statuses_and_outputs() {
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("app.dot");
    let path = file.to_str().unwrap();
    assert_eq!(run(&["golden/feeds/app.adl", "--out", path]), (0, String::new(), String::new()));
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("digraph"), "the name of the file says the format");

    // No other format than the name of the file says.
    let picture = out.path().join("app.png");
    let arguments = ["golden/feeds/app.adl", "--out", picture.to_str().unwrap()];
    let (status, _, problems) = run(&arguments);
    assert_eq!((status, problems.lines().count(), picture.exists()), (2, 1, false), "{problems}");
    assert!(problems.contains("app.png: ") && problems.contains("--format"), "{problems}");
    assert_eq!(run(&[&arguments[..], &["--format", "svg"]].concat()).0, 0);
    for (name, begins) in [("app.SVG", "<svg"), ("app.mmd", "flowchart"), ("app", "<svg")] {
        let file = out.path().join(name);
        assert_eq!(run(&["golden/feeds/app.adl", "--out", file.to_str().unwrap()]).0, 0, "{name}");
        assert!(std::fs::read_to_string(&file).unwrap().contains(begins), "{name}");
    }

    let (status, text, problems) = run(&["golden/feeds/app.adl", "--width", "Lane=0"]);
    assert_eq!((status, text.as_str()), (3, ""));
    assert!(problems.contains("CDISR1164E"), "{problems}");
    // As written, it can be looked at all the same.
    let (status, text, _) = run(&["golden/feeds/app.adl", "--width", "Lane=0", "--view", "logical"]);
    assert_eq!(status, 0);
    assert!(text.starts_with("<svg"), "{text}");

    let (status, _, problems) = run(&["no-such-file.adl"]);
    assert_eq!((status, problems.lines().count()), (2, 1), "{problems}");
    assert_eq!(run(&["golden/feeds/app.adl", "--max-nodes", "1"]).0, 2);
}

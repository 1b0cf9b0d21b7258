//! Memory that a bundle can make its reader take, counted at every allocation; alone, because it counts them all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use peak_alloc::PeakAlloc;
use std::io::Cursor;
use streams_bundle::{Application, BuildIdPolicy, Builder, Bundle, Error, ReadOptions};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Octets of each ADL, or a few more.
const SIZE: usize = 8 << 20;

fn builder(adl: String) -> Builder {
    Builder::new(Application {
        name: "apps.Main".to_owned(),
        output_directory: "out".to_owned(),
        toolkit: "apps".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl,
    })
}

/// An ADL whose application has this in its tag, and this in it.
fn adl(tag: &str, content: &str) -> String {
    let namespace = "http://www.ibm.com/xmlns/prod/streams/application/v4200";
    format!("<applicationSet xmlns=\"{namespace}\"><splApplication {tag}>{content}</splApplication></applicationSet>")
}

/// Rule bundle-6: two copies of the ADL, whatever it is.
#[test]
fn a_bundle_takes_as_much_memory_as_two_copies_of_its_adl() {
    let sound = || adl("outputDirectory='out'", &" ".repeat(SIZE));
    let bundles = [
        ("sound", builder(sound()), true),
        ("another file of the name of the ADL", builder(sound()).file("a/apps.Main.adl", vec![b' '; SIZE]), true),
        ("quotes", builder(adl(&format!("outputDirectory='{}'", "\"".repeat(SIZE)), "")), false),
        ("an attribute", builder(adl(&format!("applicationDirectory='{}'", "x".repeat(SIZE)), "")), false),
        ("attributes", builder(adl(&" aaaa=''".repeat(SIZE / 8), "")), false),
        ("namespaces", builder(adl(&" xmlns:a='b'".repeat(SIZE / 12), "")), false),
        ("a name", builder(format!("<{}/>", "x".repeat(SIZE))), false),
        ("the name of an end", builder(format!("<a></{}>", "x".repeat(SIZE))), false),
    ];
    for (title, builder, is_sound) in bundles {
        let sab = builder.build().unwrap();
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        let options = ReadOptions { build_id: BuildIdPolicy::Skip, ..ReadOptions::default() };
        let bundle = Bundle::read(Cursor::new(&sab), &options).unwrap();
        let rewritten = bundle.adl_for_submission();
        let taken = ALLOCATOR.peak_usage() - before;
        println!("{title}: {} KiB", taken >> 10);
        assert!(taken < 2 * SIZE + (1 << 20), "{title}: {taken} octets");
        match rewritten {
            Ok(_) => assert!(is_sound, "{title}"),
            Err(error @ (Error::Limit { .. } | Error::Adl(_))) => assert!(!is_sound, "{title}: {error}"),
            Err(error) => panic!("{title}: {error}"),
        }
    }
}

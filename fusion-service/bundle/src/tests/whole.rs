//! What is written is read again, and what other tools write is read.

use super::*;
use std::io::Read;

#[test]
fn what_is_written_is_read() {
    let long = format!("java/{}x.jar", "long/".repeat(60));
    let builder = Builder::new(application("apps.Main"))
        .build_date(1_559_679_588)
        .file("toolkits/apps/toolkit.xml", b"<toolkit/>".to_vec())
        .executable("bin/standalone.exe", vec![0x7f; 70_000])
        .link("bin/sab", "../apps.Main.sab")
        .file(long.as_str(), vec![1, 2, 3])
        .file("etc.d/settings", Vec::new());
    let sab = builder.build().unwrap();
    assert!(is_bundle(&sab));

    let bundle = read(&sab).unwrap();
    assert_eq!(bundle.adl(), ADL);
    assert_eq!(*bundle.build_id(), BuildId::Verified);
    let info = bundle.info();
    assert_eq!((info.output_directory.as_str(), info.adl_file.as_str()), ("out", "apps.Main.adl"));
    assert_eq!((info.application_directory.as_str(), info.build_date), ("apps", 1_559_679_588));
    assert_eq!(info.toolkits[0].files, ["toolkit.xml"]);
    assert_eq!(info.output_files, ["etc.d/settings"]);
    let submitted = bundle.adl_for_submission().unwrap();
    let expected = format!(
        r#"buildId="{}" outputDirectory="/tmp/assets/out" applicationDirectory="/tmp/assets/out/toolkits/apps""#,
        info.build_id
    );
    assert!(submitted.contains(&expected), "{submitted}");

    // As other programs see it.
    let mut zip = ZipArchive::new(Cursor::new(&sab)).unwrap();
    let names: Vec<_> = zip.file_names().map(|name| name.unwrap().into_owned()).collect();
    assert_eq!(names, ["META-INF/MANIFEST.MF", "bundleInfo.xml", "tar/bundle.tar"]);
    let mut manifest = String::new();
    zip.by_name("META-INF/MANIFEST.MF").unwrap().read_to_string(&mut manifest).unwrap();
    assert!(
        manifest.starts_with("Manifest-Version: 1.0\r\n") && manifest.contains("StreamsBundleFile: apps.Main.sab\r\n")
    );
    assert!(manifest.contains(&format!("BuildId: {}\r\n", info.build_id)));
    let payload = zip.by_name(PAYLOAD).unwrap();
    let mut archive = tar::Archive::new(payload);
    let entries: Vec<_> = archive
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let link = entry.link_name().unwrap().map(|link| link.display().to_string());
            (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap(), link)
        })
        .filter(|(path, _, _)| !path.starts_with("out/java/"))
        .collect();
    let plain = |path: &str, mode: u32| (path.to_owned(), mode, None);
    let link = |path: &str, target: &str| (path.to_owned(), 0o777, Some(target.to_owned()));
    assert_eq!(
        entries,
        [
            plain("out/", 0o755),
            plain("out/apps.Main.adl", 0o644),
            plain("out/bin/", 0o755),
            link("out/bin/sab", "../apps.Main.sab"),
            plain("out/bin/standalone.exe", 0o755),
            plain("out/etc/", 0o755),
            plain("out/etc.d/", 0o755),
            plain("out/etc.d/settings", 0o644),
            link("out/etc/adl", "../apps.Main.adl"),
            plain("out/toolkits/", 0o755),
            plain("out/toolkits/apps/", 0o755),
            plain("out/toolkits/apps/toolkit.xml", 0o644),
        ]
    );
}

#[test]
fn the_same_input_makes_the_same_bundle() {
    let one = Builder::new(application("a")).file("x", vec![1]).file("y", vec![2]).build().unwrap();
    let other = Builder::new(application("a")).file("y", vec![2]).file("x", vec![1]).build().unwrap();
    assert_eq!(one, other);
    // Written down, so that another machine or a new version of a library shows.
    let info = read(&one).unwrap().info().build_id.clone();
    assert_eq!(info, "2bbc12aff40d6fef63a529aa732066ca124dff3ac608f95c1c6df8fb");
}

#[test]
fn paths_that_cannot_be_written() {
    let build = |path: &str| Builder::new(application("a")).file(path, Vec::new()).build().unwrap_err().to_string();
    let table = [
        ("../x", "the bundle has an entry with the unsafe name \"out/../x\""),
        ("x/", "the bundle has an entry with the unsafe name \"out/x/\""),
        ("/x", "the bundle has an entry with the unsafe name \"out//x\""),
        ("", "the bundle has an entry with the unsafe name \"out/\""),
        ("a.adl", "two files at a.adl"),
        ("a.adl/x", "two files at out/a.adl"),
        ("etc/adl", "two files at etc/adl"),
        ("etc", "two files at out/etc"),
    ];
    for (path, message) in table {
        assert_eq!(build(path), message);
    }
}

#[test]
fn finding_the_adl() {
    let long = format!("out/{}", "d/".repeat(100));
    let long_adl = format!("{long}x.adl");
    let pax = format!("{} path=out/x.adl\n", "00 path=out/x.adl\n".len());
    let gnu = |name: &str| format!("{name}\0");
    let table: &[(&str, Vec<u8>, Option<&str>)] = &[
        ("exact", tar(&[file("out/x.adl", "1")]), Some("1")),
        ("exact before suffix", tar(&[file("y/x.adl", "2"), file("out/x.adl", "1")]), Some("1")),
        ("first suffix", tar(&[file("y/x.adl", "2"), file("z/x.adl", "3"), file("out/y.adl", "4")]), Some("2")),
        ("first of the same name", tar(&[file("out/x.adl", "1"), file("out/x.adl", "2")]), Some("1")),
        ("at the top", tar(&[file("x.adl", "1")]), Some("1")),
        ("with a dot", tar(&[file("./out/./x.adl", "1")]), Some("1")),
        ("not the end of another name", tar(&[file("out/yx.adl", "1")]), None),
        ("no file", tar(&[("out/x.adl", EntryType::Directory, b""), ("a/x.adl", EntryType::Symlink, b"")]), None),
        ("a link is not followed", tar(&[("out/x.adl", EntryType::Symlink, b""), file("a/x.adl", "1")]), Some("1")),
        ("nothing", tar(&[]), None),
        ("an empty tar", Vec::new(), None),
        (
            "a long name",
            tar(&[("././@LongLink", EntryType::GNULongName, gnu(&long_adl).as_bytes()), file("out/truncated", "1")]),
            Some("1"),
        ),
        (
            "a long name is for one entry",
            tar(&[("L", EntryType::GNULongName, gnu("y").as_bytes()), file("out/x.adl", "1"), file("b/x.adl", "2")]),
            Some("2"),
        ),
        (
            "a long link is of no interest",
            tar(&[
                ("K", EntryType::GNULongLink, b"/etc/passwd\0"),
                ("l", EntryType::Symlink, b""),
                file("out/x.adl", "1"),
            ]),
            Some("1"),
        ),
        (
            "a name in a pax record",
            tar(&[("p", EntryType::XHeader, pax.as_bytes()), file("y", "1"), file("a/x.adl", "2")]),
            Some("1"),
        ),
        (
            "a global pax record",
            tar(&[("p", EntryType::XGlobalHeader, pax.as_bytes()), file("out/x.adl", "1")]),
            Some("1"),
        ),
    ];
    for (case, tar, expected) in table {
        for build_id in [BuildIdPolicy::Skip, BuildIdPolicy::Report, BuildIdPolicy::Require] {
            let options = ReadOptions { build_id, ..ReadOptions::default() };
            match (Bundle::read(Cursor::new(sab(tar)), &options), expected) {
                (Ok(bundle), Some(expected)) => assert_eq!(bundle.adl(), *expected, "{case}"),
                (Err(Error::NoAdl(path)), None) => assert_eq!(path, "out/x.adl", "{case}"),
                (result, _) => panic!("{case}: {result:?}"),
            }
        }
    }
}

/// As the Java tools write archives: sizes follow the content.
#[test]
fn archives_with_data_descriptors() {
    let tar = tar(&[file("out/x.adl", "1")]);
    let mut zip = ZipWriter::new_stream(Vec::new());
    for (name, octets) in [(INFO, &info("out", "x.adl", &tar)), (PAYLOAD, &tar)] {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(octets).unwrap();
    }
    let octets = zip.finish().unwrap().into_inner();
    assert!(octets.windows(4).any(|window| window == b"PK\x07\x08"));
    assert_eq!(read(&octets).unwrap().adl(), "1");
}

#[test]
fn the_build_id_is_compared_as_asked() {
    let tar = tar(&[file("out/x.adl", "1"), file("out/bin/x.so", &"x".repeat(100_000))]);
    let actual = hex::encode(Sha224::digest(&tar));
    let wrong = zip(&[(INFO, &info("out", "x.adl", b"other")), (PAYLOAD, &tar)]);
    let read = |build_id| Bundle::read(Cursor::new(&wrong), &ReadOptions { build_id, ..ReadOptions::default() });
    assert_eq!(*read(BuildIdPolicy::Skip).unwrap().build_id(), BuildId::Unchecked);
    assert_eq!(*read(BuildIdPolicy::Report).unwrap().build_id(), BuildId::Differs { actual: actual.clone() });
    let Err(Error::BuildId { declared, actual: found }) = read(BuildIdPolicy::Require) else { panic!("accepted") };
    assert_eq!((declared, found), (hex::encode(Sha224::digest(b"other")), actual));
}

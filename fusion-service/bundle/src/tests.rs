//! Whole bundles: what is written is read again, and hostile ones are refused with an error that names the entry.

use std::io::{Cursor, Read, Write};

use proptest::prelude::*;
use sha2::{Digest, Sha224};
use tar::{EntryType, Header};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::*;

const ADL: &str = r#"<applicationSet xmlns="http://www.ibm.com/xmlns/prod/streams/application/v4200"><splApplication
    name="apps::Main" buildId="" outputDirectory="out" applicationDirectory="toolkits/apps"/></applicationSet>"#;

fn application(name: &str) -> Application {
    Application {
        name: name.to_owned(),
        output_directory: "out".to_owned(),
        toolkit: "apps".to_owned(),
        toolkit_version: "1.0.0".to_owned(),
        adl: ADL.to_owned(),
    }
}

fn read(sab: &[u8]) -> Result<Bundle, Error> {
    Bundle::read(Cursor::new(sab), &ReadOptions::default())
}

/// What is wrong with a bundle, as it is said.
fn refusal(sab: &[u8]) -> String {
    read(sab).unwrap_err().to_string()
}

fn zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, octets) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(octets).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn info(output_directory: &str, adl_file: &str, tar: &[u8]) -> Vec<u8> {
    let info = BundleInfo {
        bundle_version: "4300".to_owned(),
        build_id: hex::encode(Sha224::digest(tar)),
        build_date: 1,
        application_directory: "apps".to_owned(),
        output_directory: output_directory.to_owned(),
        adl_file: adl_file.to_owned(),
        execution_mode: ExecutionMode::Distributed,
        toolkits: Vec::new(),
        output_files: Vec::new(),
    };
    info.to_xml().unwrap()
}

/// A bundle with this tar, whose ADL is `out/x.adl`.
fn sab(tar: &[u8]) -> Vec<u8> {
    zip(&[(INFO, &info("out", "x.adl", tar)), (PAYLOAD, tar)])
}

/// A tar of entries as they come, names written as they are.
fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, kind, octets) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(octets.len() as u64);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, *octets).unwrap();
    }
    tar.into_inner().unwrap()
}

fn file<'t>(name: &'t str, octets: &'t str) -> (&'t str, EntryType, &'t [u8]) {
    (name, EntryType::Regular, octets.as_bytes())
}

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

#[test]
fn entries_that_are_missing_or_doubled() {
    let tar = tar(&[file("out/x.adl", "1")]);
    let info = info("out", "x.adl", &tar);
    type Entries<'t> = &'t [(&'t str, &'t [u8])];
    let table: &[(Entries<'_>, &str)] = &[
        (&[], "the bundle has no bundleInfo.xml"),
        (&[(PAYLOAD, &tar)], "the bundle has no bundleInfo.xml"),
        (&[(INFO, &info)], "the bundle has no tar/bundle.tar"),
        (&[(INFO, &info), ("tar/bundle.tar/x", &tar)], "the bundle has no tar/bundle.tar"),
        (&[(INFO, &info), (PAYLOAD, &tar), ("./bundleInfo.xml", &info)], "the bundle has two entries bundleInfo.xml"),
        (&[(INFO, &info), (PAYLOAD, &tar), ("tar//bundle.tar", &tar)], "the bundle has two entries tar/bundle.tar"),
        (&[(INFO, b"<x"), (PAYLOAD, &tar)], "bundleInfo.xml: not well-formed at offset 0"),
        (&[(INFO, &info), (PAYLOAD, &tar), ("../x", b"")], "the bundle has an entry with the unsafe name \"../x\""),
        (&[(INFO, &info), (PAYLOAD, &tar), ("a/../../x", b"")], "the bundle has an entry with the unsafe name"),
        (&[(INFO, &info), (PAYLOAD, &tar), ("/etc/passwd", b"")], "the bundle has an entry with the unsafe name"),
    ];
    for (entries, message) in table {
        let error = refusal(&zip(entries));
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn hostile_tars() {
    let huge_name = "x".repeat(70_000);
    let adl = "x".repeat(1 << 20);
    let mut lying = tar(&[file("out/x.adl", "1")]);
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..9].copy_from_slice(b"out/x.adl");
    header.set_size(1 << 40);
    header.set_cksum();
    lying[..512].copy_from_slice(header.as_bytes());
    let mut short = lying.clone();
    header.set_size(2_000);
    header.set_cksum();
    short[..512].copy_from_slice(header.as_bytes());
    let mut overflow = lying.clone();
    header.as_gnu_mut().unwrap().size = [0xff; 12];
    header.set_cksum();
    overflow[..512].copy_from_slice(header.as_bytes());
    let table: &[(Vec<u8>, &str)] = &[
        (tar(&[file("/out/x.adl", "1")]), "tar/bundle.tar has an entry with the unsafe name \"/out/x.adl\""),
        (
            tar(&[file("out/../out/x.adl", "1")]),
            "tar/bundle.tar has an entry with the unsafe name \"out/../out/x.adl\"",
        ),
        (tar(&[("../x", EntryType::Symlink, b"")]), "tar/bundle.tar has an entry with the unsafe name \"../x\""),
        (
            tar(&[("L", EntryType::GNULongName, b"/etc/passwd\0"), file("out/x.adl", "1")]),
            "tar/bundle.tar has an entry with the unsafe name \"/etc/passwd\"",
        ),
        (
            tar(&[("L", EntryType::GNULongName, huge_name.as_bytes()), file("out/x.adl", "1")]),
            "a name in tar/bundle.tar exceeds the limit of 65536 octets",
        ),
        (
            tar(&[("p", EntryType::XHeader, huge_name.as_bytes()), file("out/x.adl", "1")]),
            "a name in tar/bundle.tar exceeds the limit of 65536 octets",
        ),
        (tar(&[("p", EntryType::XHeader, b"nonsense\n"), file("out/x.adl", "1")]), "tar/bundle.tar is damaged"),
        (
            tar(&[("p", EntryType::XHeader, b"18 size=123456789\n"), file("out/x.adl", "1")]),
            "tar/bundle.tar is not supported: a file of more than 8 GiB",
        ),
        (tar(&[("out/x.adl", EntryType::GNUSparse, b"1")]), "tar/bundle.tar is not supported: a sparse file"),
        (lying, "out/x.adl exceeds the limit of 67108864 octets"),
        (short, "out/x.adl is damaged: 1536 of 2000 octets"),
        (overflow, ""),
        (vec![b'x'; 2_000], "tar/bundle.tar is damaged"),
        (tar(&[file("out/y", &adl)])[..1_000].to_vec(), "tar/bundle.tar is damaged"),
        // A bundle where the tar should be.
        (sab(&tar(&[file("out/x.adl", "1")])), "tar/bundle.tar is damaged"),
        (tar(&[("out/x.adl", EntryType::Regular, b"\xff\xfe")]), "the ADL of the bundle: not UTF-8 at offset 0"),
    ];
    for (tar, message) in table {
        let error = refusal(&sab(tar));
        assert!(error.starts_with(message), "{error} instead of {message}");
    }
}

#[test]
fn limits() {
    let tar = tar(&[file("out/a", ""), file("out/b", ""), file("out/x.adl", "12345")]);
    let bundle = zip(&[(INFO, &info("out", "x.adl", &tar)), (PAYLOAD, &tar), ("x", b""), ("y", b"")]);
    let exact = Limits {
        bundle: bundle.len() as u64,
        info: info("out", "x.adl", &tar).len() as u64,
        payload: tar.len() as u64,
        ratio: 200,
        entries: 4,
        adl: 5,
    };
    let read = |limits| Bundle::read(Cursor::new(&bundle), &ReadOptions { limits, ..ReadOptions::default() });
    assert!(read(exact).is_ok());
    let table = [
        (Limits { bundle: exact.bundle - 1, ..exact }, "the bundle exceeds the limit of"),
        (Limits { info: exact.info - 1, ..exact }, "bundleInfo.xml exceeds the limit of"),
        (Limits { payload: exact.payload - 1, ..exact }, "tar/bundle.tar exceeds the limit of"),
        (Limits { entries: 3, ..exact }, "the directory of the bundle exceeds the limit of 3 entries"),
        (Limits { adl: 4, ..exact }, "out/x.adl exceeds the limit of 4 octets"),
    ];
    for (limits, message) in table {
        let error = read(limits).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let many: Vec<_> = (0..10).map(|_| file("out/a", "")).collect();
    let limits = Limits { entries: 5, ..Limits::default() };
    let error = Bundle::read(Cursor::new(sab(&self::tar(&many))), &ReadOptions { limits, ..ReadOptions::default() });
    assert_eq!(error.unwrap_err().to_string(), "tar/bundle.tar exceeds the limit of 5 entries");
}

/// A bundle with a file of 32 MiB of zeros.
fn bomb() -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    zip.start_file(INFO, options).unwrap();
    zip.write_all(&info("out", "x.adl", b"")).unwrap();
    zip.start_file(PAYLOAD, options).unwrap();
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..5].copy_from_slice(b"out/y");
    header.set_size(32 << 20);
    header.set_cksum();
    zip.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..32 {
        zip.write_all(&zeros).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn bombs() {
    let mut bomb = bomb();
    assert!(bomb.len() < 50_000);
    let error = refusal(&bomb);
    assert!(error.starts_with("tar/bundle.tar exceeds the limit of"), "{error}");
    // What the directory says, 24 octets into the header of the entry, is not relied upon.
    let header = bomb.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    bomb[header + 24..header + 28].copy_from_slice(&4_096u32.to_le_bytes());
    let error = refusal(&bomb);
    println!("{error}");
    assert!(error.starts_with("tar/bundle.tar "), "{error}");
    // A description is a bomb as well.
    let spaces = vec![b' '; 8 << 20];
    let error = refusal(&zip(&[(INFO, &spaces), (PAYLOAD, b"")]));
    assert_eq!(error, "bundleInfo.xml exceeds the limit of 4194304 octets");
}

#[test]
fn damaged_archives() {
    let sab = Builder::new(application("a")).file("bin/x", (0..=255).cycle().take(50_000).collect()).build().unwrap();
    for length in (0..sab.len()).step_by(7) {
        assert!(read(&sab[..length]).is_err(), "cut off at {length}");
    }
    assert!(refusal(b"<applicationSet/>").starts_with("not a bundle: "));
    assert!(refusal(b"").starts_with("not a bundle: "));
    // One octet of the compressed tar: the checksum notices, whatever the decompressor says.
    let position = sab.windows(14).position(|window| window == b"tar/bundle.tar").unwrap() + 400;
    let mut changed = sab.clone();
    changed[position] ^= 0x10;
    let error = refusal(&changed);
    assert!(error.contains("damaged"), "{error}");
    // Encryption.
    let mut changed = sab.clone();
    let header = changed.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
    changed[header + 8] |= 1;
    let error = refusal(&changed);
    assert!(error.starts_with("tar/bundle.tar is not supported: "), "{error}");
}

#[test]
fn contents_tell_bundles_from_adls() {
    for (octets, expected) in
        [(&b"PK\x03\x04"[..], true), (b"PK\x05\x06", true), (b"PK", false), (b"<?xml", false), (b"", false)]
    {
        assert_eq!(is_bundle(octets), expected);
    }
    assert!(is_bundle(&zip(&[])));
}

proptest! {

    #[test]
    fn any_application_comes_back(
        name in "[a-zA-Zé.]{1,40}",
        directory in "[a-z]{1,8}(/[a-z<&\"]{1,8}){0,2}",
        toolkit in "[a-z.&']{1,12}",
        adl in "\\PC{0,200}",
        files in prop::collection::btree_map("(data|bin|toolkits/x)/[a-zé]{1,120}", prop::collection::vec(any::<u8>(), 0..2_000), 0..8),
    ) {
        let application = Application {
            name: name.clone(), output_directory: directory.clone(), toolkit: toolkit.clone(), toolkit_version: "1".to_owned(), adl: adl.clone(),
        };
        prop_assume!(!["..", "."].contains(&name.as_str()));
        let builder = files.iter().fold(Builder::new(application), |builder, (path, octets)| builder.file(path.as_str(), octets.clone()));
        let octets = builder.build().unwrap();
        prop_assert_eq!(&builder.build().unwrap(), &octets);
        let options = ReadOptions { build_id: BuildIdPolicy::Require, ..ReadOptions::default() };
        let bundle = Bundle::read(Cursor::new(&octets), &options).unwrap();
        prop_assert_eq!(bundle.adl(), adl);
        prop_assert_eq!(&bundle.info().output_directory, &directory);
        prop_assert_eq!(&bundle.info().application_directory, &toolkit);
        let outputs = files.keys().filter(|path| path.starts_with("data/")).count();
        prop_assert_eq!(bundle.info().output_files.len(), outputs);
    }

    #[test]
    fn any_octets_are_answered(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        _ = read(&octets);
        _ = read(&sab(&octets));
        _ = read(&zip(&[(INFO, &octets), (PAYLOAD, &octets)]));
        _ = submission::rewrite(&String::from_utf8_lossy(&octets), "x");
    }

    #[test]
    fn any_damage_is_answered(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>()) {
        let mut octets = Builder::new(application("a")).file("bin/x", vec![7; 3_000]).build().unwrap();
        for (place, value) in changes {
            let place = place.index(octets.len());
            octets[place] = value;
        }
        _ = read(&octets);
        octets.truncate(cut.index(octets.len()));
        _ = read(&octets);
    }

    #[test]
    fn any_damage_of_a_tar_is_answered(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut octets = tar(&[("L", EntryType::GNULongName, b"out/x\0"), file("a", "b"), file("out/x.adl", "1")]);
        for (place, value) in changes {
            let place = place.index(octets.len());
            octets[place] = value;
        }
        _ = read(&sab(&octets));
    }
}

//! Bundles that are refused, with an error that names the entry.

use super::*;

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
        (overflow, "tar/bundle.tar is damaged: size overflow"),
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
    assert!(error.starts_with("tar/bundle.tar "), "{error}");
    // Nor is what it says of the compressed size, 4 octets before that.
    let mut bomb = self::bomb();
    bomb[header + 20..header + 24].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let error = refusal(&bomb);
    assert!(error.starts_with("tar/bundle.tar exceeds the limit of"), "{error}");
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

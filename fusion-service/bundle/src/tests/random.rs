//! Any application comes back, and any octets get an answer.

use super::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

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

}

proptest! {
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

//! What a job needs of its bundle.
//!
//! Knows: that a bundle has an ADL. Must not know: what is in it, where the bundle came from.

use super::contents::Content;
use super::error::BundleError;
use super::place::Place;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::io::Cursor;
use streams_api::BundleReference;
use streams_bundle::{BuildIdPolicy, Bundle, Limits, ReadOptions};

/// What a job needs of its bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// File name of the bundle, as PEs ask for it (rule fetch-2).
    pub sab_name: String,
    /// The ADL as it is compiled: build id and directories set.
    pub adl: Bytes,
    /// SHA-256 of the ADL, lower-case hexadecimal.
    pub adl_sha256: String,
    /// SHA-256 of the whole bundle, lower-case hexadecimal.
    pub bundle_sha256: String,
}

impl Application {
    /// Takes the ADL out of a bundle, which has this place.
    ///
    /// # Errors
    /// When it is no bundle, has no name, or its ADL has more than `max_adl_bytes`.
    pub(super) async fn of(
        reference: &BundleReference,
        content: Content,
        max_adl_bytes: u64,
        place: &Place,
    ) -> Result<Self, BundleError> {
        let nameless = || BundleError::permanent("BundleInvalid", "the bundle has no name");
        let title = reference.title().ok_or_else(nameless)?;
        let sab_name = reference.sab_name(&content.sha256).ok_or_else(nameless)?;
        // Inflating is a matter of seconds for a large bundle, and nobody waits for it but a submission.
        let read = place.in_background(move || {
            let adl = extract(&title, &content.bytes, max_adl_bytes)?;
            let adl_sha256 = hex::encode(Sha256::digest(&adl));
            Ok(Self { sab_name, adl, adl_sha256, bundle_sha256: content.sha256 })
        });
        read.await
    }
}

fn extract(title: &str, bytes: &[u8], max_adl_bytes: u64) -> Result<Bytes, BundleError> {
    let invalid = |error: streams_bundle::Error| match error {
        streams_bundle::Error::Limit { .. } => BundleError::permanent("BundleTooLarge", format!("{title}: {error}")),
        error => BundleError::permanent("BundleInvalid", format!("{title} is not a usable bundle: {error}")),
    };
    let limits = Limits { adl: max_adl_bytes, ..Limits::default() };
    // One bundle is unpacked at a time, so what is behind the ADL, which may be a hundred times as much, is not read.
    let options = ReadOptions { limits, build_id: BuildIdPolicy::Skip };
    let bundle = Bundle::read(Cursor::new(bytes), &options).map_err(invalid)?;
    let adl = bundle.adl_for_submission().map_err(invalid)?;
    if adl.len() as u64 > max_adl_bytes {
        return Err(BundleError::permanent(
            "BundleTooLarge",
            format!("the ADL of {title} has more than {max_adl_bytes} bytes"),
        ));
    }
    Ok(adl.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_the_adl_is_not_read() {
        let namespace = "http://www.ibm.com/xmlns/prod/streams/application/v4200";
        let application = streams_bundle::Application {
            name: "demo.App".to_owned(),
            output_directory: "demo".to_owned(),
            toolkit: "demo".to_owned(),
            toolkit_version: "1.0.0".to_owned(),
            adl: format!("<applicationSet xmlns='{namespace}'><splApplication name='App'/></applicationSet>"),
        };
        // Noise, which is not compressed.
        let noise = std::iter::successors(Some(1_u32), |number| Some(number.wrapping_mul(1_664_525).wrapping_add(7)));
        let noise = noise.map(|number| number.to_be_bytes()[0]).take(1 << 20).collect();
        let mut sab = streams_bundle::Builder::new(application).file("java/noise", noise).build().unwrap();
        let middle = sab.len() / 2;
        sab[middle] ^= 0x10;
        assert!(Bundle::read(Cursor::new(&sab), &ReadOptions::default()).is_err(), "it is damaged");
        let adl = extract("App.sab", &sab, 1 << 20).unwrap();
        assert!(std::str::from_utf8(&adl).unwrap().contains("name='App'"));
    }
}

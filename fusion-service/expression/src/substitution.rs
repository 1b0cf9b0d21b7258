//! The channel functions, and their substitution in texts that are not expressions.
//!
//! Stream names and property values get [`substitute_intrinsics`], host names and location ids
//! [`substitute_location`] (rules expression-12 and expression-13). Expressions have their own substitution,
//! [`Expression::substitute_and_fold`](crate::Expression::substitute_and_fold). Where an operator stands is given;
//! nothing here knows regions.

use crate::value::beginning_of;
use std::borrow::Cow;
use std::fmt::Write;

/// A channel function of the expression language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intrinsic {
    Channel,
    LocalChannel,
    MaxChannels,
    LocalMaxChannels,
}

impl Intrinsic {
    const ALL: [Self; 4] = [Self::Channel, Self::LocalChannel, Self::MaxChannels, Self::LocalMaxChannels];

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|intrinsic| intrinsic.call().strip_suffix("()") == Some(name))
    }

    /// The call as it is written: one token, without inner blanks.
    pub(crate) fn call(self) -> &'static str {
        match self {
            Self::Channel => "getChannel()",
            Self::LocalChannel => "getLocalChannel()",
            Self::MaxChannels => "getMaxChannels()",
            Self::LocalMaxChannels => "getLocalMaxChannels()",
        }
    }
}

/// Where an operator stands in one of the parallel regions around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionChannel {
    /// The channel among all channels of the region in the application (rule expansion-5).
    pub global_channel: u64,
    /// How many channels the region has in the application.
    pub global_max_channels: u64,
    /// The channel within the enclosing channel.
    pub local_channel: u64,
    /// The width of the region.
    pub local_max_channels: u64,
}

/// The values of the channel functions for one operator (rule expression-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intrinsics {
    /// `getChannel()`: the global channel of the innermost region.
    pub channel: i64,
    /// `getMaxChannels()`
    pub max_channels: i64,
    /// `getLocalChannel()`
    pub local_channel: i64,
    /// `getLocalMaxChannels()`
    pub local_max_channels: i64,
}

impl Intrinsics {
    /// The values outside all parallel regions: channel -1, number 0.
    pub const OUTSIDE_REGIONS: Self = Self { channel: -1, max_channels: 0, local_channel: -1, local_max_channels: 0 };

    /// The values for an operator in the regions given, innermost first.
    #[must_use]
    pub fn of(regions: &[RegionChannel]) -> Self {
        let clamp = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        regions.first().map_or(Self::OUTSIDE_REGIONS, |innermost| Self {
            channel: clamp(innermost.global_channel),
            max_channels: clamp(innermost.global_max_channels),
            local_channel: clamp(innermost.local_channel),
            local_max_channels: clamp(innermost.local_max_channels),
        })
    }

    pub(crate) fn value(&self, intrinsic: Intrinsic) -> i64 {
        match intrinsic {
            Intrinsic::Channel => self.channel,
            Intrinsic::LocalChannel => self.local_channel,
            Intrinsic::MaxChannels => self.max_channels,
            Intrinsic::LocalMaxChannels => self.local_max_channels,
        }
    }
}

/// Replaces the channel functions in a stream name or a property value, exactly as they are spelled (`getChannel()`,
/// without inner blanks). Everything else stays (rule expression-12).
#[must_use]
pub fn substitute_intrinsics<'t>(text: &'t str, intrinsics: &Intrinsics) -> Cow<'t, str> {
    let calls = Intrinsic::ALL.map(|intrinsic| (intrinsic.call(), intrinsics.value(intrinsic).to_string()));
    substitute_calls(text, &calls)
}

fn substitute_calls<'t>(text: &'t str, calls: &[(&'static str, String)]) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for (call, value) in calls {
        if text.contains(call) {
            text = Cow::Owned(text.replace(call, value));
        }
    }
    text
}

/// Why the placeholders of a location cannot be substituted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// The second argument of `byChannel` is not an integer.
    #[error("byChannel: the nesting depth {0:?} is not a number")]
    DepthNotANumber(String),
    /// The second argument of `byChannel` names a region that is not there.
    #[error("byChannel: the nesting depth {depth} is outside the {regions} parallel region(s) around the operator")]
    DepthOutOfRange {
        /// The depth as written.
        depth: String,
        /// How many regions are around the operator.
        regions: usize,
    },
    /// A text with an absurd number of `byChannel`.
    #[error("byChannel occurs more than {0} times in one text")]
    TooMany(usize),
    /// The text would become longer than the caller has room for.
    #[error("with the channels put in, the text has more than {0} bytes")]
    TooLong(usize),
}

/// How often `byChannel` may occur in one text.
const MAXIMUM_BY_CHANNEL: usize = 64;

/// Replaces the placeholders in a host name or the id of a co-location or ex-location (rule expression-13).
///
/// `regions` are those around the operator, innermost first. `byChannel(NAME, N)` becomes `NAME_<g>` with the global
/// channel of the N-th region counted from the outermost, or `NAME` outside all regions; then the channel functions are
/// replaced, those over all regions (`getAllChannels()`) by `[g0,g1]`, innermost first. These are the only ones that
/// make a text longer, and where many regions are within each other very much longer: the result has at most `most`
/// bytes.
///
/// # Errors
///
/// [`LocationError`] when a depth is no number or no region has it, or when the result would be too long.
pub fn substitute_location<'t>(
    text: &'t str,
    regions: &[RegionChannel],
    most: usize,
) -> Result<Cow<'t, str>, LocationError> {
    let text = substitute_by_channel(text, regions)?;
    let intrinsics = Intrinsics::of(regions);
    let calls = Intrinsic::ALL.map(|intrinsic| (intrinsic.call(), intrinsics.value(intrinsic).to_string()));
    let mut text = match text {
        Cow::Borrowed(text) => substitute_calls(text, &calls),
        Cow::Owned(text) => Cow::Owned(substitute_calls(&text, &calls).into_owned()),
    };
    let calls_of_all: [(&str, &str, fn(&RegionChannel) -> u64); 2] = [
        ("getAllChannels()", "-1", |region| region.global_channel),
        ("getAllMaxChannels()", "0", |region| region.global_max_channels),
    ];
    for (call, outside, value) in calls_of_all {
        let times = text.matches(call).count();
        if times == 0 {
            continue;
        }
        let values: Vec<String> = regions.iter().map(|region| value(region).to_string()).collect();
        let all = if values.is_empty() { format!("[{outside}]") } else { format!("[{}]", values.join(",")) };
        let rest = text.len() - times * call.len();
        if rest.saturating_add(times.saturating_mul(all.len())) > most {
            return Err(LocationError::TooLong(most));
        }
        text = Cow::Owned(text.replace(call, &all));
    }
    if text.len() > most { Err(LocationError::TooLong(most)) } else { Ok(text) }
}

fn substitute_by_channel<'t>(text: &'t str, regions: &[RegionChannel]) -> Result<Cow<'t, str>, LocationError> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..=MAXIMUM_BY_CHANNEL {
        let Some(call) = ByChannel::first_in(&text) else { return Ok(text) };
        let mut replaced = format!("{}{}", call.before, call.name);
        if !regions.is_empty() || !call.depth_is_a_number() {
            // Writing to a String does not fail.
            _ = write!(replaced, "_{}", call.global_channel(regions)?);
        }
        replaced.push_str(call.after);
        text = Cow::Owned(replaced);
    }
    Err(LocationError::TooMany(MAXIMUM_BY_CHANNEL))
}

/// `before byChannel(name, depth) after`
struct ByChannel<'t> {
    before: &'t str,
    name: &'t str,
    depth: &'t str,
    after: &'t str,
}

impl<'t> ByChannel<'t> {
    /// The leftmost call: a name without comma, a comma and one blank, a depth up to the closing parenthesis.
    fn first_in(text: &'t str) -> Option<Self> {
        const OPEN: &str = "byChannel(";
        let mut from = 0;
        loop {
            let start = from + text[from..].find(OPEN)?;
            let arguments = &text[start + OPEN.len()..];
            let (name, rest) = arguments.split_once(',')?;
            if let Some(rest) = rest.strip_prefix(' ') {
                let (depth, after) = rest.split_once(')')?;
                return Some(Self { before: &text[..start], name, depth, after });
            }
            // Calls that begin before this comma end at it as well.
            from = text.len() - rest.len();
        }
    }

    fn depth_is_a_number(&self) -> bool {
        let digits = self.depth.strip_prefix(['+', '-']).unwrap_or(self.depth);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn global_channel(&self, regions: &[RegionChannel]) -> Result<u64, LocationError> {
        if !self.depth_is_a_number() {
            return Err(LocationError::DepthNotANumber(beginning_of(self.depth)));
        }
        let from_outermost = self.depth.parse::<usize>().ok();
        from_outermost
            .and_then(|depth| regions.iter().rev().nth(depth))
            .map(|region| region.global_channel)
            .ok_or_else(|| LocationError::DepthOutOfRange { depth: beginning_of(self.depth), regions: regions.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Global channels 7, 3, 1 of 12, 8, 2; widths 3, 4, 2.
    const NESTED: [RegionChannel; 3] = [
        RegionChannel { global_channel: 7, global_max_channels: 12, local_channel: 1, local_max_channels: 3 },
        RegionChannel { global_channel: 3, global_max_channels: 8, local_channel: 2, local_max_channels: 4 },
        RegionChannel { global_channel: 1, global_max_channels: 2, local_channel: 1, local_max_channels: 2 },
    ];

    #[test]
    fn stream_names_and_property_values() {
        let table = [
            ("S_getChannel()", "S_7", "S_-1"),
            ("getLocalChannel()/getLocalMaxChannels()", "1/3", "-1/0"),
            ("getMaxChannels()getMaxChannels()", "1212", "00"),
            ("\"forgetChannel()\"", "\"for7\"", "\"for-1\""),
            ("getChannel ()", "getChannel ()", "getChannel ()"),
            ("getAllChannels()", "getAllChannels()", "getAllChannels()"),
            ("plain", "plain", "plain"),
        ];
        for (text, inside, outside) in table {
            assert_eq!(substitute_intrinsics(text, &Intrinsics::of(&NESTED)), inside);
            assert_eq!(substitute_intrinsics(text, &Intrinsics::OUTSIDE_REGIONS), outside);
        }
    }

    #[test]
    fn locations() {
        let table = [
            ("A_byChannel(P1.H2, 1)_B", "A_P1.H2_3_B", "A_P1.H2_B"),
            ("byChannel(x, 0)", "x_1", "x"),
            ("byChannel(x, 2)", "x_7", "x"),
            ("byChannel(x, 0)byChannel(y, 1)", "x_1y_3", "xy"),
            ("byChannel(byChannel(x, 0), 1)", "x_1_3", "x"),
            ("byChannel(, 0)", "_1", ""),
            ("getAllChannels()", "[7,3,1]", "[-1]"),
            ("getAllMaxChannels()", "[12,8,2]", "[0]"),
            ("getChannel()getLocalChannel()", "71", "-1-1"),
            ("getMaxChannels()getLocalMaxChannels()", "123", "00"),
            ("byChannel(getChannel(), 0)", "7_1", "-1"),
            // No calls: one blank has to follow the comma, and the parenthesis has to close.
            ("byChannel(x,0)", "byChannel(x,0)", "byChannel(x,0)"),
            ("byChannel(x, 0", "byChannel(x, 0", "byChannel(x, 0"),
            ("byChannel(x)", "byChannel(x)", "byChannel(x)"),
            ("byChannel(x,0) byChannel(y, 0)", "byChannel(x,0) y_1", "byChannel(x,0) y"),
            ("host.example.org", "host.example.org", "host.example.org"),
        ];
        for (text, inside, outside) in table {
            assert_eq!(substitute_location(text, &NESTED, usize::MAX).unwrap(), inside, "{text}");
            assert_eq!(substitute_location(text, &[], usize::MAX).unwrap(), outside, "{text}");
        }
    }

    #[test]
    fn depths_that_are_none() {
        for depth in ["", "x", "1 ", " 1", "1.0", "+"] {
            for regions in [&NESTED[..], &[]] {
                let text = format!("byChannel(x, {depth})");
                let result = substitute_location(&text, regions, usize::MAX).map(Cow::into_owned);
                assert_eq!(result, Err(LocationError::DepthNotANumber(depth.to_owned())));
            }
        }
        for depth in ["3", "-1", "99999999999999999999999"] {
            let error = substitute_location(&format!("byChannel(x, {depth})"), &NESTED, usize::MAX).unwrap_err();
            assert!(matches!(error, LocationError::DepthOutOfRange { regions: 3, .. }), "{error}");
        }
        let many = "byChannel(x, 0)".repeat(MAXIMUM_BY_CHANNEL);
        assert!(substitute_location(&many, &NESTED, usize::MAX).is_ok());
        let many = "byChannel(x, 0)".repeat(MAXIMUM_BY_CHANNEL + 1);
        assert_eq!(substitute_location(&many, &NESTED, usize::MAX), Err(LocationError::TooMany(MAXIMUM_BY_CHANNEL)));
    }

    #[test]
    fn a_location_is_as_long_as_there_is_room_for() {
        for (text, length) in [
            ("plain", 5),
            ("byChannel(x, 0)", 3),
            ("getAllChannels()/getAllChannels()", 15),
            ("getAllMaxChannels()", 8),
        ] {
            assert_eq!(substitute_location(text, &NESTED, length).map(|filled| filled.len()), Ok(length), "{text}");
            let shorter = substitute_location(text, &NESTED, length - 1);
            assert_eq!(shorter, Err(LocationError::TooLong(length - 1)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered(parts in proptest::collection::vec(prop_oneof![
            Just("byChannel("), Just(", "), Just(","), Just(")"), Just("0"), Just("9"), Just("é"), Just("getAllChannels()"),
        ], 0..40)) {
            let text = parts.concat();
            _ = substitute_location(&text, &NESTED, 60);
            _ = substitute_location(&text, &[], usize::MAX);
        }
    }
}

//! Which addresses a job can make the frontend connect to (rule fetch-11).
//!
//! Knows: addresses, the blocks they lie in, the ways in which one address is written inside another. Must not know:
//! names, URLs, connections.
//!
//! Invariants: an address and what stands for it in IPv6 (mapped, NAT64) are treated alike. What is allowed
//! explicitly is never refused.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks that nobody may make the frontend connect to: this host, this link, and metadata services of clouds.
const REFUSED: [(IpAddr, u8); 10] = [
    (v4(0, 0, 0, 0), 8),
    (v4(127, 0, 0, 0), 8),
    (v4(169, 254, 0, 0), 16),
    (v4(100, 100, 100, 200), 32),
    (v4(168, 63, 129, 16), 32),
    (v4(192, 0, 0, 192), 32),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 128),
    (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), 128),
];

/// Where most forms have the IPv4 address.
const LAST: [usize; 4] = [12, 13, 14, 15];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

/// Which addresses may be connected to.
#[derive(Clone, Debug)]
pub(super) struct AddressRules {
    allowed: Vec<IpNet>,
    denied: Vec<IpNet>,
}

impl AddressRules {
    /// What is always refused and what is `denied`, but for what is `allowed`.
    pub(super) fn new(allowed: &[IpNet], denied: &[IpNet]) -> Self {
        let always = REFUSED.iter().filter_map(|(address, length)| IpNet::new(*address, *length).ok());
        Self { allowed: allowed.to_vec(), denied: always.chain(denied.iter().copied()).collect() }
    }

    /// Whether a connection to this address may be made. `api_server` has the addresses of the API server.
    pub(super) fn permit(&self, address: IpAddr, api_server: &[IpAddr]) -> bool {
        let in_any = |blocks: &[IpNet], address: &IpAddr| blocks.iter().any(|block| block.contains(address));
        if same_as(address).iter().any(|address| in_any(&self.allowed, address)) {
            return true;
        }
        !forms(address).iter().any(|address| in_any(&self.denied, address) || api_server.contains(address))
    }
}

/// The address, and the IPv4 address that it stands for wherever one connects to it.
fn same_as(address: IpAddr) -> Vec<IpAddr> {
    let mut same = vec![address];
    if let IpAddr::V6(v6) = address {
        let well_known = v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
        same.extend(v6.to_ipv4_mapped().or_else(|| well_known.then(|| embedded(v6, LAST))).map(IpAddr::V4));
    }
    same
}

/// The address, and every address that it may stand for: IPv4-mapped, IPv4-compatible and IPv4-translated addresses,
/// NAT64 (the well-known prefix and those for local use), 6to4.
fn forms(address: IpAddr) -> Vec<IpAddr> {
    let mut forms = vec![address];
    let IpAddr::V6(v6) = address else { return forms };
    let mut stands_for = |bytes| forms.push(IpAddr::V4(embedded(v6, bytes)));
    match v6.segments() {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => stands_for(LAST),
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => stands_for(LAST),
        // A network chooses a prefix of its own in this block, of any length that NAT64 has from 48 on. Where the
        // prefix is longer, the bytes in the place of a shorter one are mostly zeros, which lead nowhere.
        [0x64, 0xff9b, 1, ..] => {
            stands_for(LAST);
            [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12]]
                .into_iter()
                .filter(|bytes| v6.octets()[bytes[0]] != 0)
                .for_each(stands_for);
        }
        [0x2002, ..] => stands_for([2, 3, 4, 5]),
        _ => {}
    }
    forms
}

fn embedded(address: Ipv6Addr, bytes: [usize; 4]) -> Ipv4Addr {
    let octets = address.octets();
    Ipv4Addr::from(bytes.map(|byte| octets[byte]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_of_this_host_this_link_and_of_metadata_services_are_refused() {
        let rules = AddressRules::new(&[], &[]);
        let table = [
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("1.0.0.0", true),
            ("126.255.255.255", true),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("128.0.0.0", true),
            ("169.253.255.255", true),
            ("169.254.169.254", false),
            ("169.255.0.0", true),
            ("100.100.100.200", false),
            ("100.100.100.201", true),
            ("168.63.129.16", false),
            ("192.0.0.192", false),
            ("192.0.0.193", true),
            ("10.0.0.1", true),
            ("8.8.8.8", true),
            ("::", false),
            ("::1", false),
            ("::2", false),
            ("::7f00:1", false),
            ("fe80::1", false),
            ("febf::1", false),
            ("fec0::1", true),
            ("fd00:ec2::254", false),
            ("fd00:ec2::253", true),
            ("2001:4860:4860::8888", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:8.8.8.8", true),
            ("::ffff:0:127.0.0.1", false),
            ("64:ff9b::127.0.0.1", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b:1::169.254.169.254", false),
            ("64:ff9b:1:7f00:0:100::", false),
            ("64:ff9b:1::8.8.8.8", true),
            ("2002:7f00:1::1", false),
            ("2002:808:808::1", true),
        ];
        for (address, expected) in table {
            assert_eq!(rules.permit(address.parse().unwrap(), &[]), expected, "{address}");
        }
    }

    #[test]
    fn what_is_allowed_is_not_refused_and_the_api_server_is() {
        let api: [IpAddr; 2] = ["10.96.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let rules =
            AddressRules::new(&blocks(&["127.0.0.1/32", "10.0.7.0/24"]), &blocks(&["10.0.0.0/16", "fd12::/16"]));
        let table = [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("127.0.0.2", false),
            ("10.0.7.9", true),
            ("10.0.8.9", false),
            ("::ffff:10.0.8.9", false),
            ("fd12::1", false),
            ("10.96.0.1", false),
            ("::ffff:10.96.0.1", false),
            ("64:ff9b::10.96.0.1", false),
            ("10.96.0.2", true),
            ("fd00::1", false),
        ];
        for (address, expected) in table {
            assert_eq!(rules.permit(address.parse().unwrap(), &api), expected, "{address}");
        }
    }

    /// An IPv4 address, often one of those that matter.
    fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
        let first = prop_oneof![Just(0_u8), Just(10), Just(100), Just(127), Just(169), any::<u8>()];
        let second = prop_oneof![Just(100_u8), Just(254), any::<u8>()];
        (first, second, any::<u8>(), any::<u8>()).prop_map(|(a, b, c, d)| Ipv4Addr::new(a, b, c, d))
    }

    proptest! {
        /// However an address is written, it is treated alike: there is no other way to it.
        #[test]
        fn mapped_and_nat64_forms_are_treated_as_what_is_in_them(
            v4 in any_v4(), allowed in any_v4(), denied in any_v4(), api in any_v4(), length in 0_u8..=32,
        ) {
            let block = |address| vec![IpNet::new(IpAddr::V4(address), length).unwrap()];
            let rules = AddressRules::new(&block(allowed)[..usize::from(length > 8)], &block(denied));
            let api = [IpAddr::V4(api)];
            let expected = rules.permit(IpAddr::V4(v4), &api);
            let [a, b, c, d] = v4.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for v6 in [v4.to_ipv6_mapped(), Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)] {
                prop_assert_eq!(rules.permit(IpAddr::V6(v6), &api), expected, "{}", v6);
            }
            // Other forms need not be allowed with it, but are refused with it.
            for v6 in [
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, high.max(0x100), c, d << 8, 0, 0),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                prop_assert!(expected || a == 0 || !rules.permit(IpAddr::V6(v6), &api), "{}", v6);
            }
        }
    }
}

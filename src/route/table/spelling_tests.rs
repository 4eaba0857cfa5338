//! A gate must not be passed by spelling: random paths, disguised at random, against back ends that
//! decode in their own, sloppier ways. The back ends here share no code with the gateway.

use percent_encoding::percent_decode;
use proptest::prelude::*;

use super::tests::{gated, get, open, table};
use super::*;

/// How one back end reads a path.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent habits")]
struct BackEnd {
    /// How often it decodes before it splits; 0: it splits first and decodes each segment.
    decodings: usize,
    backslash: bool,
    parameters: bool,
    dots: bool,
    cut: bool,
}

impl BackEnd {
    fn segments(self, path: &str) -> Vec<Vec<u8>> {
        let mut bytes = path.as_bytes().to_vec();
        for _ in 0..self.decodings {
            bytes = percent_decode(&bytes).collect();
        }
        if self.cut
            && let Some(end) = bytes.iter().position(|b| matches!(b, b'?' | b'#'))
        {
            bytes.truncate(end);
        }
        let mut out: Vec<Vec<u8>> = Vec::new();
        for part in bytes.split(|b| *b == b'/' || (self.backslash && *b == b'\\')) {
            let part = part.split(|b| self.parameters && *b == b';').next().unwrap_or_default();
            let part: Vec<u8> = percent_decode(part).collect();
            match part.as_slice() {
                b"" => {}
                b"." if self.dots => {}
                b".." if self.dots => {
                    out.pop();
                }
                _ => out.push(part),
            }
        }
        out
    }
}

fn back_end() -> impl Strategy<Value = BackEnd> {
    (0_usize..3, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(decodings, backslash, parameters, dots, cut)| BackEnd {
            decodings,
            backslash,
            parameters,
            dots,
            cut,
        },
    )
}

/// One disguise, applied at a random place of a path.
fn disguise(path: &str, (kind, place): (u8, usize)) -> String {
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    let slash = slashes[place % slashes.len()];
    let replace = |with: &str| format!("{}{with}{}", &path[..slash], &path[slash + 1..]);
    // Anything but the inside of an escape may be encoded.
    let plain: Vec<usize> = (1..path.len())
        .filter(|at| !path.as_bytes()[at.saturating_sub(2)..=*at].contains(&b'%'))
        .collect();
    let encode = |format: fn(u8) -> String| match plain.get(place % plain.len().max(1)) {
        Some(&at) => format!("{}{}{}", &path[..at], format(path.as_bytes()[at]), &path[at + 1..]),
        None => path.to_owned(),
    };
    match kind {
        0 => encode(|b| format!("%{b:02x}")),
        1 => encode(|b| format!("%{b:02X}")),
        2 => encode(|b| format!("%25{b:02x}")),
        3 => replace("//"),
        4 => replace("/./"),
        5 => replace("/x/../"),
        6 => replace("/%2e%2E/"),
        7 if slash > 0 => replace("%2f"),
        8 if slash > 0 => replace("\\"),
        9 if slash > 0 => replace("%5C"),
        10 if slash > 0 => replace(";x=1/"),
        11 => replace("/y/..;/"),
        12 if slash > 0 => replace("%3bz/"),
        13 => replace("/q%2f..%2F"),
        14 => format!("{path}%3Fa"),
        15 => format!("{path};a=b"),
        16 => format!("{path}/"),
        17 => replace("/%2F"),
        _ => path.to_owned(),
    }
}

/// Whether a back end takes the path for one of the gated route `/gate/*`.
fn is_protected(segments: &[Vec<u8>]) -> bool {
    segments.first().is_some_and(|first| first == b"gate")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_spelling_reaches_a_protected_path_without_the_gate(
        path in "(/(gate|open|a)){1,3}",
        disguises in prop::collection::vec((0_u8..20, any::<usize>()), 0..6),
        back_end in back_end(),
    ) {
        let table = table(vec![gated("/gate/*"), open("/*"), open("/open/{x}")]);
        let spelled = disguises.into_iter().fold(path, |path, one| disguise(&path, one));
        if let Ok(Matched::Route { route, target, .. }) = table.resolve(get(&spelled)) {
            prop_assert!(
                route.gated.is_some() || !is_protected(&back_end.segments(target.path())),
                "{spelled} went to the open route {} as {}, and {back_end:?} serves the protected path",
                route.label, target.as_str(),
            );
            // What was judged is what is sent: sending it again is judged the same.
            let again = table.resolve(get(target.as_str())).unwrap();
            prop_assert_eq!(again.target(), &target);
            let same = matches!(again, Matched::Route { route: same, .. } if same == route);
            prop_assert!(same, "{spelled} changed its route when sent again");
        }
    }

    #[test]
    fn harmless_spellings_still_arrive(
        path in "(/(gate|open|a)){1,3}",
        disguises in prop::collection::vec((prop_oneof![Just(1_u8), Just(3), Just(4), Just(5)], any::<usize>()), 0..4),
    ) {
        let table = table(vec![gated("/gate/*"), open("/*"), open("/open/{x}")]);
        let spelled = disguises.into_iter().fold(path.clone(), |path, one| {
            // Only letters may be encoded here: an encoded slash is not harmless.
            let disguised = disguise(&path, one);
            if disguised.contains("%2F") || disguised.contains("%25") { path } else { disguised }
        });
        let plain = table.resolve(get(&path)).unwrap();
        let matched = table.resolve(get(&spelled)).unwrap();
        let route = |matched: &Matched| match matched {
            Matched::Route { route, .. } => route.label.clone(),
            other => format!("{other:?}"),
        };
        prop_assert_eq!(route(&matched), route(&plain));
    }
}

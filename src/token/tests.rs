//! A token works for its queue, its owner and nothing else.

use proptest::prelude::*;

use super::*;

fn keyring(ids: &[u8]) -> Keyring {
    Keyring::new(ids.iter().map(|id| TokenKey::new(*id, [*id; 32])).collect()).unwrap()
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn claims() -> Claims {
    Claims {
        source: UserSource::Jwt,
        owner: UserTag(*b"somebody"),
        incarnation: 9,
        place: Place { seq: Seq(77), entered: Timestamp::from_millis(1_764_540_000_250) },
        proof: Proof::Entry,
    }
}

#[test]
fn a_token_is_75_characters_and_gives_back_what_it_was_made_from() {
    let ring = keyring(&[1]);
    let at = Timestamp::from_millis(1_764_540_100_000);
    for proof in [
        Proof::Entry,
        Proof::Waited { at, head: 70 },
        Proof::Waited { at, head: 77 },
        Proof::Lease(ProvenLease { until: at, claimed: false }),
        Proof::Lease(ProvenLease { until: at, claimed: true }),
    ] {
        let claims = Claims { proof, ..claims() };
        let text = ring.sign(&queue("deal-1"), &claims);
        assert_eq!(text.len(), TOKEN_CHARS);
        let token = UnverifiedToken::parse(&text).unwrap();
        assert!(token.hints_at(&queue("deal-1")));
        assert_eq!(ring.verify(&queue("deal-1"), &token), Ok(claims));
    }
}

#[test]
fn a_token_of_another_queue_or_another_key_is_forged() {
    let text = keyring(&[1]).sign(&queue("deal-1"), &claims());
    let token = UnverifiedToken::parse(&text).unwrap();
    assert_eq!(keyring(&[1]).verify(&queue("deal-2"), &token), Err(TokenError::Forged));
    assert_eq!(keyring(&[2]).verify(&queue("deal-1"), &token), Err(TokenError::Forged));
    let same_id = Keyring::new(vec![TokenKey::new(1, [9; 32])]).unwrap();
    assert_eq!(same_id.verify(&queue("deal-1"), &token), Err(TokenError::Forged));
}

#[test]
fn a_rotated_key_still_verifies_and_the_newest_signs() {
    let old = keyring(&[1]).sign(&queue("deal-1"), &claims());
    let rotated = keyring(&[2, 1]);
    assert!(rotated.verify(&queue("deal-1"), &UnverifiedToken::parse(&old).unwrap()).is_ok());
    let new = rotated.sign(&queue("deal-1"), &claims());
    let new = UnverifiedToken::parse(&new).unwrap();
    assert!(keyring(&[2]).verify(&queue("deal-1"), &new).is_ok());
    assert!(keyring(&[1]).verify(&queue("deal-1"), &new).is_err());
}

#[test]
fn every_single_changed_bit_is_noticed() {
    let ring = keyring(&[1]);
    let text = ring.sign(&queue("deal-1"), &claims());
    let token = UnverifiedToken::parse(&text).unwrap();
    for bit in 0..TOKEN_BYTES * 8 {
        let mut changed = token;
        changed.bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(ring.verify(&queue("deal-1"), &changed), Err(TokenError::Forged), "bit {bit}");
    }
}

#[test]
fn truncated_padded_doubled_and_respelled_tokens_are_malformed() {
    let text = keyring(&[1]).sign(&queue("deal-1"), &claims());
    // The last character carries two spare bits: only one of four spellings is the token.
    let respelled = |last: char| format!("{}{last}", &text[..TOKEN_CHARS - 1]);
    let own = text.chars().last().unwrap();
    let others = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['-', '_']);
    let accepted: Vec<char> =
        others.filter(|c| UnverifiedToken::parse(&respelled(*c)).is_ok()).collect();
    assert!(accepted.contains(&own) && accepted.len() == 16, "{accepted:?}");
    for bad in [
        String::new(),
        text[..74].to_owned(),
        format!("{text}="),
        format!("{text}{text}"),
        format!(" {}", &text[1..]),
        text.replace(|_| true, "+"),
        "é".repeat(37) + "x",
    ] {
        assert_eq!(UnverifiedToken::parse(&bad), Err(TokenError::Malformed), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_text_panics_or_passes(text in ".{0,100}") {
        let ring = keyring(&[1]);
        if let Ok(token) = UnverifiedToken::parse(&text) {
            prop_assert!(ring.verify(&queue("deal-1"), &token).is_err());
        }
    }

    #[test]
    fn no_token_shaped_bytes_pass(bytes in prop::collection::vec(any::<u8>(), TOKEN_BYTES)) {
        let ring = keyring(&[1]);
        if let Ok(token) = UnverifiedToken::parse(&URL_SAFE_NO_PAD.encode(bytes)) {
            prop_assert!(ring.verify(&queue("deal-1"), &token).is_err());
        }
    }
}

#[test]
fn keys_are_read_strictly() {
    let secret = base64::engine::general_purpose::STANDARD.encode([5; 32]);
    assert_eq!(TokenKey::parse(&format!("k7:{secret}")), Ok(TokenKey::new(7, [5; 32])));
    assert_eq!(TokenKey::parse(&format!("7:{secret}")), Err(KeyringError::Form));
    assert_eq!(TokenKey::parse(&format!("k256:{secret}")), Err(KeyringError::Form));
    assert_eq!(TokenKey::parse(&format!("k07:{secret}")), Err(KeyringError::Form));
    assert_eq!(TokenKey::parse("k7:AAAA"), Err(KeyringError::Length));
    assert_eq!(Keyring::new(vec![]).err(), Some(KeyringError::Empty));
    let twice = vec![TokenKey::new(1, [1; 32]), TokenKey::new(1, [2; 32])];
    assert_eq!(Keyring::new(twice).err(), Some(KeyringError::Twice(1)));
    assert!(!format!("{:?}", TokenKey::new(7, [5; 32])).contains("[5"));
}

//! BM25 over the words of tools.
//!
//! A word counts the more, the fewer tools have it, and the higher its weight in a tool; the second with diminishing
//! returns, and less in a tool with many words. See Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25
//! and Beyond" (2009), section 3.5: weights of fields are added before they saturate. A synonym of a query's word counts
//! less than the word itself, however rare it is. Then a tool gains by what the other tools of its server have of the query,
//! and by the part of its own name that the query covers; it loses by words that it lacks, and if it does something else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::answer::SearchMatches;
use super::entry::{FoundAction, IndexEntry, SUMMARY};
use super::intent::SearchIntent;
use super::words::{AskedWord, asked, spelled, stem, words};
use super::{Error, SearchQuery, answer, groups, synonyms};
use crate::ground::text::{listed, nearest, one_line};
use ipybox_codegen::{self as codegen, Tool};

/// The saturation by more of the same word, and the discount of long texts.
const K1: f32 = 2.0;
const B: f32 = 0.6;
/// The part of a word's count that its synonyms have, those words of names that begin with it, and the parts of a word that
/// is made of two.
const SYNONYM: f32 = 0.6;
const LONGER: f32 = 0.8;
const PART: f32 = 0.5;
/// The part of the average score of a server's other tools that a tool gains.
const SHARED: f32 = 0.5;
/// The gain of a tool whose whole name is in the query, and in proportion if some of it is.
const COVERED: f32 = 0.6;
/// The part of a score that a tool loses if it has none of the query's words, and in proportion if it lacks some.
const LACKING: f32 = 0.35;
/// The part of a score that a tool loses which changes something where a query asks to read, and the like.
const CONTRARY: f32 = 0.2;
/// Hits below this part of the best one are left out: they share a common word with the query, and no more.
const FAR: f32 = 0.3;
/// The number of tools that are suggested if none has a word of the query.
const SUGGESTED: usize = 5;
/// The number of saved actions that an answer shows.
const ACTIONS: usize = 3;
/// The most words of a query that count, and of those without a tool that are compared with the words of tools.
const WORDS: usize = 64;
const COMPARED: usize = 8;
/// The shortest word that asks for longer ones too: `elastic` for `elasticsearch`.
const LONGER_BYTES: usize = 6;
/// Words that are made of two have this length, their parts this one, and each part is in the names or summaries of as
/// many tools.
const COMPOUND_BYTES: usize = 7;
const PART_BYTES: usize = 3;
const PART_TOOLS: usize = 3;

/// The tools of all servers.
#[derive(Debug, Default)]
pub struct SearchIndex {
    entries: Vec<IndexEntry>,
    /// The range of each server's entries among them.
    servers: BTreeMap<String, Range<usize>>,
    postings: HashMap<String, Posting>,
    /// The words of all names, in order.
    names: Vec<String>,
}

/// The tools that have a word.
#[derive(Debug, Default)]
struct Posting {
    /// The count of the word, which is the higher, the fewer tools have it.
    rarity: f32,
    /// The tools, each with the word's weight, and later with its count there.
    tools: Vec<(u32, f32)>,
}

/// A word of a query, with the words of tools that it asks for: itself, its synonyms and longer ones.
struct Term<'q> {
    word: &'q AskedWord,
    found: Vec<MatchedWord<'q>>,
}

/// A word of tools that a word of a query asks for.
struct MatchedWord<'q> {
    word: &'q str,
    posting: &'q Posting,
    /// The part of the posting's counts that counts.
    part: f32,
}

/// The counts of a query's terms for a tool.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    own: f32,
    /// The part of its server's other tools.
    shared: f32,
    /// The number of terms that the tool has.
    terms: u16,
}

impl SearchIndex {
    /// An index of the tools of `servers`, which are in order.
    pub fn new<'t>(servers: impl IntoIterator<Item = (&'t str, &'t [Tool])>) -> Self {
        let groups = servers.into_iter().map(|(server, tools)| {
            let entry = move |(tool, module)| IndexEntry::new(server, tool, module);
            (server, tools.iter().zip(codegen::module_names(tools)).map(entry))
        });
        Self::of_groups(groups)
    }

    /// An index of saved actions. They have one of their own: no text of theirs moves a tool in the order of tools.
    pub(crate) fn of_actions(actions: &[FoundAction]) -> Self {
        Self::of_groups([("", actions.iter().map(IndexEntry::of_action))])
    }

    fn of_groups<'t>(
        groups: impl IntoIterator<Item = (&'t str, impl IntoIterator<Item = (IndexEntry, BTreeMap<String, f32>)>)>,
    ) -> Self {
        let mut index = Self::default();
        let mut lengths = Vec::new();
        for (group, entries) in groups {
            let begin = index.entries.len();
            for (entry, words) in entries {
                let number = u32::try_from(index.entries.len()).unwrap_or(u32::MAX);
                index.entries.push(entry);
                lengths.push(words.values().sum::<f32>());
                for (word, weight) in words {
                    index.postings.entry(word).or_default().tools.push((number, weight));
                }
            }
            index.servers.insert(group.to_owned(), begin..index.entries.len());
        }
        index.names = index.words_of_names();
        index.split_compounds();
        index.weigh(&lengths);
        index
    }

    fn words_of_names(&self) -> Vec<String> {
        let tools = self.entries.iter().flat_map(|entry| &entry.name).map(|(word, _)| word.clone());
        let servers = self.servers.keys().flat_map(|name| words(name));
        let mut names: Vec<String> =
            tools.chain(servers).filter(|word| self.postings.contains_key(word)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Lets tools be found by the parts of words in their names that are made of two: `worklog` by `work` and `log`.
    fn split_compounds(&mut self) {
        let is_part = |word: &str| {
            let tools = self.postings.get(word).into_iter().flat_map(|posting| &posting.tools);
            tools.filter(|(_, weight)| *weight >= SUMMARY).take(PART_TOOLS).count() == PART_TOOLS
        };
        let parts = |word: &str| {
            let last = word.len().saturating_sub(PART_BYTES);
            let cuts = (PART_BYTES..=last).filter(|at| word.is_char_boundary(*at));
            let mut pairs = cuts.map(|at| [stem(word[..at].to_owned()), stem(word[at..].to_owned())]);
            pairs.find(|pair| pair.iter().all(|part| is_part(part)))
        };
        let long = self.names.iter().filter(|word| word.len() >= COMPOUND_BYTES);
        let compounds: Vec<_> = long.filter_map(|word| Some((word.clone(), parts(word)?))).collect();
        for (word, parts) in compounds {
            let tools = self.postings[&word].tools.clone();
            for part in parts {
                let posting = self.postings.entry(part).or_default();
                posting.tools.extend(tools.iter().map(|(number, weight)| (*number, weight * PART)));
                posting.tools.sort_by_key(|(number, _)| *number);
                posting.tools.dedup_by(|next, kept| {
                    let is_same = next.0 == kept.0;
                    kept.1 += if is_same { next.1 } else { 0.0 };
                    is_same
                });
            }
        }
    }

    /// Makes what a word counts of its weights, for tools whose words have these weights together.
    fn weigh(&mut self, lengths: &[f32]) {
        let count = lengths.len() as f32;
        let average = lengths.iter().sum::<f32>() / count.max(1.0);
        for Posting { rarity, tools } in self.postings.values_mut() {
            let have = tools.len() as f32;
            *rarity = (1.0 + (count - have + 0.5) / (have + 0.5)).ln();
            for (number, weight) in tools {
                let length = 1.0 - B + B * lengths[*number as usize] / average;
                *weight = *rarity * *weight * (K1 + 1.0) / (*weight + K1 * length);
            }
        }
        for (word, rarity) in self.entries.iter_mut().flat_map(|entry| &mut entry.name) {
            *rarity = self.postings.get(word).map_or(0.0, |posting| posting.rarity);
        }
    }

    /// Answers a query, as text for a model.
    ///
    /// # Errors
    /// The query is out of bounds, or names a server that is not there.
    pub fn search(&self, query: &SearchQuery) -> Result<String, Error> {
        super::check(query)?;
        let within = match &query.server {
            Some(name) => self.servers.get(name).cloned().ok_or_else(|| self.unknown(name))?,
            None => 0..self.entries.len(),
        };
        let intent = SearchIntent::of(&spelled(&query.query));
        let asked = asked_words(&query.query);
        let terms = self.terms(&asked);
        if terms.is_empty() {
            return Ok(match &query.server {
                Some(name) => groups::of_server(name, &self.entries[within]),
                None => groups::of_all(&self.servers),
            });
        }
        let hits = self.hits(&terms, intent, &within);
        if hits.is_empty() {
            let near = self.best(self.hits(&self.near(&asked), intent, &within), SUGGESTED);
            return Ok(answer::of_nothing(query, &near, within.len()));
        }
        let matched = hits.len();
        let unknown = self.unmatched(&terms, &within);
        let matches =
            SearchMatches { best: self.best(hits, query.limit), matched, searched: within.len(), unknown };
        Ok(answer::of_matches(&matches, query.limit))
    }

    /// The saved actions that fit a query, as text for a model, or all if it has no words; `None` if there are none.
    pub(crate) fn saved_actions(&self, query: &SearchQuery) -> Option<String> {
        let within = 0..self.entries.len();
        let asked = asked_words(&query.query);
        let terms = self.terms(&asked);
        if terms.is_empty() {
            return groups::of_actions(&self.entries);
        }
        let hits = self.hits(&terms, SearchIntent::of(&spelled(&query.query)), &within);
        let matched = hits.len();
        let best = self.best(hits, query.limit.min(ACTIONS));
        let matches = SearchMatches { best, matched, searched: within.len(), unknown: Vec::new() };
        (matched > 0).then(|| answer::of_actions(&matches))
    }

    /// The words that count, with the words of tools that they ask for.
    fn terms<'q>(&'q self, asked: &'q [AskedWord]) -> Vec<Term<'q>> {
        let terms = asked.iter().map(|word| Term { word, found: self.found(&word.stem) });
        terms.filter(|term| !term.word.is_joined || !term.found.is_empty()).collect()
    }

    fn found<'q>(&'q self, stem: &'q str) -> Vec<MatchedWord<'q>> {
        let found = |word: &'q str, part| Some(MatchedWord { word, posting: self.postings.get(word)?, part });
        let own = found(stem, 1.0);
        let most = own.as_ref().map_or(f32::INFINITY, |own| own.posting.rarity);
        let synonyms = synonyms::of(stem).iter().filter_map(|word| found(word, SYNONYM));
        let synonyms = synonyms
            .map(|other| MatchedWord { part: other.part * (most / other.posting.rarity).min(1.0), ..other });
        let longer = self.longer(stem).filter_map(|word| found(word, LONGER));
        own.into_iter().chain(synonyms).chain(longer).collect()
    }

    /// Words of names that begin with another.
    fn longer(&self, stem: &str) -> impl Iterator<Item = &str> {
        let begin = self.names.partition_point(|word| word.as_str() <= stem);
        let names = if stem.len() < LONGER_BYTES { &[] } else { &self.names[begin..] };
        names.iter().map(String::as_str).take_while(move |word| word.starts_with(stem))
    }

    /// The tools `within` that have words of the query, with their scores.
    fn hits(&self, terms: &[Term<'_>], intent: SearchIntent, within: &Range<usize>) -> Vec<(f32, u32)> {
        let sums = self.sums(terms);
        let matched: HashSet<&str> =
            terms.iter().flat_map(|term| &term.found).map(|found| found.word).collect();
        let weighed = |(number, sum): (u32, &Sum)| {
            let entry = &self.entries[number as usize];
            let had = 1.0 - LACKING * (1.0 - f32::from(sum.terms) / terms.len() as f32);
            let contrary = if intent.contradicts(entry.intent) { CONTRARY } else { 0.0 };
            let factor = had * (1.0 - contrary) * (1.0 + COVERED * entry.covered(&matched));
            (sum.own * had, (sum.own + sum.shared) * factor, number)
        };
        let having = (0..).zip(&sums).skip(within.start).take(within.len()).filter(|(_, sum)| sum.terms > 0);
        let weighed: Vec<_> = having.map(weighed).collect();
        let best = weighed.iter().map(|(own, ..)| *own).fold(0.0, f32::max);
        let near = weighed.into_iter().filter(|(own, ..)| *own >= FAR * best);
        near.map(|(_, score, number)| (score, number)).collect()
    }

    /// The sums of the terms' counts for each tool.
    fn sums(&self, terms: &[Term<'_>]) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.entries.len()];
        let mut of_term = vec![0.0_f32; self.entries.len()];
        for term in terms {
            of_term.fill(0.0);
            for MatchedWord { posting, part, .. } in &term.found {
                for (number, weight) in &posting.tools {
                    let best = &mut of_term[*number as usize];
                    *best = best.max(part * weight);
                }
            }
            for tools in self.servers.values() {
                let all = of_term[tools.clone()].iter().sum::<f32>();
                let others = tools.len().saturating_sub(1).max(1) as f32;
                for number in tools.clone().filter(|_| all > 0.0) {
                    let own = of_term[number];
                    let sum = &mut sums[number];
                    sum.own += own;
                    sum.shared += SHARED * (all - own) / others;
                    sum.terms += u16::from(own > 0.0);
                }
            }
        }
        sums
    }

    /// The words of the query that no tool `within` has, nor a synonym of them.
    fn unmatched<'q>(&self, terms: &[Term<'q>], within: &Range<usize>) -> Vec<&'q str> {
        let is_within = |(number, _): &(u32, f32)| within.contains(&(*number as usize));
        let has_none =
            |term: &&Term<'q>| !term.found.iter().any(|found| found.posting.tools.iter().any(is_within));
        terms.iter().filter(has_none).map(|term| term.word.spelled.as_str()).collect()
    }

    /// The best of the hits, in order; of equals the first.
    fn best(&self, mut hits: Vec<(f32, u32)>, most: usize) -> Vec<&IndexEntry> {
        let by_score =
            |one: &(f32, u32), other: &(f32, u32)| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1));
        if hits.len() > most {
            hits.select_nth_unstable_by(most, by_score);
            hits.truncate(most);
        }
        hits.sort_unstable_by(by_score);
        hits.into_iter().map(|(_, number)| &self.entries[number as usize]).collect()
    }

    /// The words of tools that are most like those of the query, and those that begin like them.
    fn near<'q>(&'q self, asked: &'q [AskedWord]) -> Vec<Term<'q>> {
        let mut known: Vec<&str> = self.postings.keys().map(String::as_str).collect();
        known.sort_unstable();
        let near = |word: &'q AskedWord| {
            let begins = known.iter().filter(|known| {
                known.len() > 2 && (known.starts_with(&word.stem) || word.stem.starts_with(**known))
            });
            let words = nearest(&word.stem, known.iter().copied()).into_iter().chain(begins.copied());
            let found =
                words.map(|near| MatchedWord { word: near, posting: &self.postings[near], part: 1.0 });
            found.map(|found| Term { word, found: vec![found] }).collect::<Vec<_>>()
        };
        asked.iter().filter(|word| !word.is_joined).take(COMPARED).flat_map(near).take(WORDS).collect()
    }

    fn unknown(&self, name: &str) -> Error {
        let near = nearest(name, self.servers.keys().map(String::as_str));
        let hint = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean {}?", listed(near.iter().copied())),
        };
        Error::UnknownServer { name: one_line(name), hint }
    }
}

/// The words of a query that count.
fn asked_words(query: &str) -> Vec<AskedWord> {
    let mut asked = asked(query);
    asked.truncate(WORDS);
    asked
}

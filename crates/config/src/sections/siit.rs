//! `[[siit]]`: a stateless instance.

use super::eam::{self, RawEam};
use super::nat64::read_pool6;
use super::translator::Defaults;
use crate::files::Files;
use crate::problem::Problems;
use crate::reader::Table;
use crate::{keys, value};
use gatun_nat::plan::{Hairpin, IcmpPoolMode, Net4, Net6};
use gatun_wire::{Prefix64, Settings};
use std::ops::Range;
use toml::Spanned;

/// An instance as in the file.
pub(crate) struct RawSiit {
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) pool6: Vec<Spanned<Prefix64>>,
    pub(crate) eamt: Vec<RawEam>,
    pub(crate) allow_overlap: bool,
    pub(crate) hairpin: Hairpin,
    pub(crate) denylist4: Vec<Net4>,
    pub(crate) denylist6: Vec<Net6>,
    pub(crate) icmp_pool4: Vec<Net4>,
    pub(crate) icmp_pool4_mode: IcmpPoolMode,
    pub(crate) icmp_pool6: Vec<Net6>,
    pub(crate) wkp_non_global: Spanned<bool>,
    pub(crate) fastpath: bool,
    /// False: the packets of this instance stay out of P4 switches.
    pub(crate) offload: bool,
    pub(crate) settings: Settings,
    pub(crate) span: Range<usize>,
}

pub(crate) fn read(
    table: &Table<'_>,
    defaults: Defaults,
    files: &Files<'_>,
    problems: &mut Problems,
) -> RawSiit {
    let pool6 = read_pool6(table, problems);
    let mut eamt = eam::read_inline(table, problems);
    for file in table.list("eam_file", problems, |v| value::text(v).map(str::to_owned)) {
        eam::read_file(&file, files, &mut eamt, problems);
    }
    let mapped = table.node("eam").is_some() || table.node("eam_file").is_some();
    if table.node("pool6").is_none() && !mapped {
        let what = "the instance translates nothing: it has neither `pool6` nor `eam` nor `eam_file`";
        problems.error(table.span.clone(), what, table.example("pool6"));
    }
    let nets4 = |name, problems: &mut Problems| {
        table.list(name, problems, value::net4).into_iter().map(Spanned::into_inner).collect()
    };
    let nets6 = |name, problems: &mut Problems| {
        table.list(name, problems, value::net6).into_iter().map(Spanned::into_inner).collect()
    };
    let non_global = table.flag("wkp_non_global", problems).unwrap_or(false);
    RawSiit {
        name: table.get("name", problems, value::name).map(|s| Spanned::new(table.span_of("name"), s)),
        pool6,
        eamt,
        allow_overlap: table.flag("allow_overlap", problems).unwrap_or(false),
        hairpin: table.get("hairpin", problems, |v| value::choice(v, keys::HAIRPIN)).unwrap_or_default(),
        denylist4: nets4("denylist4", problems),
        denylist6: nets6("denylist6", problems),
        icmp_pool4: nets4("icmp_pool4", problems),
        icmp_pool4_mode: table
            .get("icmp_pool4_mode", problems, |v| value::choice(v, keys::POOL_MODE))
            .unwrap_or_default(),
        icmp_pool6: nets6("icmp_pool6", problems),
        wkp_non_global: Spanned::new(table.span_of("wkp_non_global"), non_global),
        fastpath: table.flag("fastpath", problems).unwrap_or(true),
        offload: table.flag("offload", problems).unwrap_or(true),
        settings: defaults.settings(table, problems),
        span: table.span.clone(),
    }
}

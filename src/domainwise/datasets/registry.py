"""What is known about each data file without opening it: checksum, size, origin, description.

The files are derived from public copies of the original releases (mostly a ``domain`` column added
to the original columns) and are never part of this package.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    """One data set as its loader returns it by default, and the file it comes from."""

    name: str
    file: str
    sha256: str
    rows: int
    domains: int
    features: int
    target: str
    description: str
    origin: str
    descr: str
    classes: int | None = None


_DEEPCYTOF = (
    "the GitHub repository lkshan/DeepCYTOF-with-Synthetic-gradient,"
    " commit 2e60d2d37f66ec4537033daff9728e25ddfb2049"
)

PARKINSONS = DataFile(
    name="parkinsons",
    file="parkinsons_telemonitoring.csv.gz",
    sha256="dac8fbbc72bb06a0cccafa1879df3563374f75b3f97bb279ecaccb9647f21396",
    rows=5875,
    domains=42,
    features=16,
    target="motor_UPDRS",
    description="Parkinson's telemonitoring: voice measures of 42 people, clinical score",
    origin=(
        "data/parkinsons_updrs.data in the GitHub repository"
        " behnazrzf/Parkinson-s_Telemonitoring, commit f603774b38bfc967f20b4752bec4b6f872917d98"
        " (also in the UCI Machine Learning Repository as Parkinsons Telemonitoring); a column"
        " 'domain', equal to 'subject#', is put in front"
    ),
    descr="""\
Parkinson's telemonitoring (Oxford)

5,875 voice recordings of 42 people with early Parkinson's disease (101 to 168 each). Domains are
the people, features the 16 voice measures from Jitter(%) to PPE. Targets are the clinical scores
motor_UPDRS and total_UPDRS. No value is missing.

The scores were interpolated between clinic visits, so inside a person they change smoothly with
time; differences between people carry more than 90 % of their variance. Predicting a constant is
therefore a strong rival on unseen people.

Difference from the paper: it speaks of about 9,000 recordings; the published table has 5,875.
Source: the UCI table of 2009, by way of behnazrzf/Parkinson-s_Telemonitoring. Cite: A. Tsanas,
M. A. Little, P. E. McSharry, L. O. Ramig, Accurate telemonitoring of Parkinson's disease
progression by non-invasive speech tests, IEEE Trans. Biomedical Engineering, 2010.
Licence: none stated; the authors ask for the citation.
""",
)

LANDMINE = DataFile(
    name="landmine",
    file="landmine.csv.gz",
    sha256="11c643a2c3e736a7cadf9b03af806e4d86fb03fb84319bba807b9b92838b1f67",
    rows=14820,
    domains=29,
    features=9,
    target="label",
    classes=2,
    description="LandMine: radar features of objects in 29 fields, mine or clutter",
    origin=(
        "LandmineData.mat in the GitHub repository daizhongxiang/Federated_Bayesian_Optimization,"
        " commit 30a4548606f2ae9bc62c6bf0eb4110177aa3876a; its 29 cells are stacked in order with"
        " columns domain, f1 to f9, label"
    ),
    descr="""\
LandMine detection

14,820 objects in 29 fields (445 to 690 each), 9 features without published names, called f1 to f9
here. Domains are the fields. Target: 1 for a mine, 0 for clutter; 904 rows (6.1 %) are mines, 2.9 %
to 9.4 % per field.

Difference from the paper: none known, it uses the same 29 fields.
Source: Duke University's LandmineData file of 2006, by way of the repository
daizhongxiang/Federated_Bayesian_Optimization. Cite: Y. Xue, X. Liao, L. Carin, B. Krishnapuram,
Multi-task learning for classification with Dirichlet process priors, JMLR 8:35-63, 2007.
Licence: none stated.
""",
)

GVHD = DataFile(
    name="gvhd",
    file="gvhd_flowcap1.csv.gz",
    sha256="f066360a6cd39b756fb256f5013930c26b24e3bd7ff27dda5156e2c59b0f6179",
    rows=207171,
    domains=12,
    features=6,
    target="t_cell",
    classes=2,
    description="GvHD (FlowCAP-I): flow cytometry of 12 samples, T cell or not; a stand-in",
    origin=(
        f"the folder Data/FlowCAP-I/GvHD in {_DEEPCYTOF}; the samples are stacked with a column"
        " 'domain', and 't_cell' is 1 where the gate is 1 or 3"
    ),
    descr="""\
Graft-versus-host disease, FlowCAP-I challenge

207,171 cells of 12 samples (12,751 to 32,700 each) with forward scatter, side scatter and four
fluorescence channels, 0 to 1023. Domains are the samples. Target `t_cell` is 1 for manual gates 1
and 3 (12.4 % of the cells, 2.9 % to 26.0 % per sample); cells outside every gate count as 0.

That gates 1 and 3 are the CD4 and CD8 T cells is inferred from their medians, which agree in all
12 samples; the files do not say so. The other gates change their meaning between samples, so the
six-way label is no target across samples.

Difference from the paper: a stand-in. The 30-patient table with CD3+CD4+CD8b+ labels that the paper
used is not public.
Source: the data that came with DeepCyTOF, in lkshan/DeepCYTOF-with-Synthetic-gradient. Cite:
R. R. Brinkman et al., Biol. Blood Marrow Transplant. 13:691-700, 2007; N. Aghaeepour et al.,
Nature Methods 10:228-238, 2013; H. Li et al., Bioinformatics 33, 2017.
Licence: Apache-2.0 for that repository; none found for the original data.
""",
)

OILWELLS = DataFile(
    name="oilwells",
    file="oilwell_3w_real_60s.csv.gz",
    sha256="14604ecccb4a6e1834b22e8cd86d80bbbf3e2a9bdf1e6e8ab07ec88a9aba3256",
    rows=2296,
    domains=7,
    features=8,
    target="label",
    classes=2,
    description="3W oil wells: minute windows of 7 wells, normal or abnormal; a stand-in",
    origin=(
        "the files data/{2,3,4,6}/WELL-*.csv in the GitHub repository ricardovvargas/3w_dataset,"
        " commit a6196f99bf0e3a3e09320efbd9de3a7f87c2f8cd; each series is cut into windows of 60"
        " seconds with mean, standard deviation, slope and range of each sensor"
    ),
    descr="""\
Petrobras 3W, real oil wells

Windows of 60 seconds from 12 offshore wells; for each of seven sensors the mean, the standard
deviation, the least-squares slope per second and the range. Domains are the wells. Target: 1 where
at least half of the window's labelled seconds are abnormal.

The default keeps event classes 2 (spurious closure of the downhole safety valve) and 6 (quick
restriction in the production choke): 2,306 windows of 7 wells, 65 % abnormal, less 10 windows
in which the sensors P-TPT and T-TPT recorded nothing. Classes 3 and 4 are abnormal from beginning
to end, so that pooling everything lets the well give the label away. Sensors other than P-PDG,
P-TPT and T-TPT are missing for whole wells, and P-PDG is stuck in several.

Difference from the paper: a stand-in. The paper's failure data of four oil fields are private.
Source: ricardovvargas/3w_dataset, an early upload of the real instances, without normal operation
and without classes 1, 5, 7 and 8. Cite: R. E. V. Vargas et al., A realistic and public dataset with
rare undesirable real events in oil wells, J. Petroleum Science and Engineering 181:106223, 2019.
Licence: MIT in that repository; the later petrobras/3W states CC BY 4.0 for the data.
""",
)

FACIES = DataFile(
    name="facies",
    file="facies_hugoton_wells.csv.gz",
    sha256="22e4ca3b0fcee82ec872e64b4c8de8fcd9bea78615acf5f79a82960be8484796",
    rows=4069,
    domains=9,
    features=7,
    target="Facies",
    classes=9,
    description="Well-log facies: rock types by depth in 9 Kansas wells",
    origin=(
        "facies_vectors.csv in the GitHub repository qckid98/facies-vector, commit"
        " a5c41c450682803fb8112232f04f7c69f5f16860 (the training table of the SEG 2016 facies"
        " contest); a column 'domain', equal to 'Well Name', is put in front"
    ),
    descr="""\
Well-log facies, Council Grove gas reservoir (Hugoton, Kansas)

Nine rock types by depth, from seven log measurements: GR, ILD_log10, DeltaPHI, PHIND, PE, NM_M and
RELPOS. Domains are the wells. The default has 4,069 rows of 9 wells; the pseudo-well Recruit F9 (80
rows, all of facies 9) is left out unless asked for. Neighbouring depths depend on each other.

PE was not measured in the wells ALEXANDER D (466 rows) and KIMZEY A (439 rows), nor in 12 rows of
Recruit F9: those entries are NaN by default.

Difference from the paper: not in it; wells as domains beside the oil stand-in.
Source: qckid98/facies-vector, a copy of the contest table. Cite: B. Hall, Facies classification
using machine learning, The Leading Edge 35:906-909, 2016; M. K. Dubois, G. C. Bohling,
S. Chakrabarti, Computers & Geosciences 33:599-617, 2007.
Licence: none stated in the copies.
""",
)

HIPC = DataFile(
    name="hipc",
    file="hipc_tcell_flow.parquet",
    sha256="5ff12df65d52412347b203829ea18a27f8c4611f24d297f2cc95f5c37f85a4d6",
    rows=491771,
    domains=19,
    features=7,
    target="label",
    classes=10,
    description="HIPC T cells: flow cytometry of 19 samples from 5 centres, 10 populations",
    origin=(
        "Data/*_values.csv and *_clust.csv in the GitHub repository Paul-Freulon/CytOpt, commit"
        " 805a27098c85219fc7a578cb5a004b274b6f14db, and HIPC_Stanford.RData, Ucla2B.rda,"
        " Miami3A.rda, Stanford3C.rda in the folder data of sistm/CytOpT-R, commits"
        " 3981460b3acd799ce196d454999c9c7057f69206 and db0ab4f7d52b8aa678ede42081542b2fd0cdd041;"
        " the samples are stacked with columns domain, center, patient, replicate"
    ),
    descr="""\
HIPC Lyoplate T-cell panel (FlowCAP-III)

491,771 manually gated cells of 19 samples (15,544 to 45,949 each) from five centres and three
patients, seven markers, ten T-cell populations. Domains are the samples; centres or patients can be
asked for. Only gated cells are present, and rows are sorted by sample and population: shuffle
before taking subsets.

Difference from the paper: not in it. The full study has 63 samples of seven centres; the others are
missing from the public copies.
Source: Paul-Freulon/CytOpt and sistm/CytOpT-R. Cite: G. Finak et al., Sci. Rep. 6:20686, 2016;
H. T. Maecker et al., Nat. Rev. Immunol. 12:191-200, 2012; P. Freulon, J. Bigot, B. P. Hejblum,
Ann. Appl. Stat., 2023.
Licence: GPL-3 and GPL (2 or later) for the two repositories; none read for the study itself.
""",
)

CYTOF = DataFile(
    name="cytof",
    file="cytof_multicenter16_sub5000.csv.gz",
    sha256="e6ae2126b3021913430c1bf593f19a32e951a6aacbe3cae0f5d191ef9e58ba47",
    rows=80000,
    domains=16,
    features=8,
    target="label",
    classes=5,
    description="CyTOF: mass cytometry of 16 samples from several centres, 5 cell labels",
    origin=(
        f"the folder Data/MultiCenter_16sample in {_DEEPCYTOF}; 5,000 cells of each sample, drawn"
        " uniformly with numpy.random.default_rng(0), are stacked with a column 'domain'"
    ),
    descr="""\
Multi-centre mass cytometry

80,000 cells, 5,000 drawn uniformly from each of 16 samples; eight markers without published names,
called m1 to m8, as raw counts. Domains are the samples. Target: manual labels 0 to 4, where 0 means
not labelled (24.9 %). Which centre measured which sample is not recorded.

Difference from the paper: not in it.
Source: the data that came with DeepCyTOF, in lkshan/DeepCYTOF-with-Synthetic-gradient. Cite:
H. Li et al., Gating mass cytometry data by deep learning, Bioinformatics 33, 2017.
Licence: Apache-2.0 for that repository; none found for the original data.
""",
)

_THINNED = "thinned evenly by domain with numpy.random.default_rng(0), the order kept"
_UCI = "Licence: CC BY 4.0 by the UCI Machine Learning Repository; the copy states none."

ADULT = DataFile(
    name="adult",
    file="adult_occupations.csv.gz",
    sha256="667a92668e2f990d959b4e7800fa1ea390fe73b0320b27984cb0f7bf0a9e28ab",
    rows=5549,
    domains=13,
    features=32,
    target="over_50k",
    classes=2,
    description="Census income: people of 13 occupations, over 50,000 dollars a year or not",
    origin=(
        "adult.data in the GitHub repository vrizawahyu22/adult-dataset, commit"
        f" 177cebb7401e583c4b6be6e0d060d8035c63b065; rows with an occupation, {_THINNED}, without"
        " fnlwgt, education and native-country"
    ),
    descr=f"""\
Census income (adult), by occupation

5,549 people, at most 450 of each of 13 occupations, the domains. Target: 1 where somebody earns
over 50,000 dollars a year, 21.4 % of all and 0.7 % to 50.9 % by occupation. Features are five
numbers and five text columns (workclass, marital-status, relationship, race, sex), whose 27 values
have an indicator each. 196 rows have a twin. Nothing is missing.

Difference from the paper: not in it.
Source: the UCI table, by way of vrizawahyu22/adult-dataset. Cite: R. Kohavi, Scaling up the
accuracy of naive-Bayes classifiers: a decision-tree hybrid, KDD, 1996.
{_UCI}
""",
)

SHOPPERS = DataFile(
    name="shoppers",
    file="shoppers_months.csv.gz",
    sha256="faeb178a9cee6c3de12632c0f49047870d726328c8c411df276b380a2c76e251",
    rows=4734,
    domains=10,
    features=18,
    target="Revenue",
    classes=2,
    description="Online shoppers: sessions of 10 months, a purchase or not",
    origin=(
        "online_shoppers_intention.csv in the GitHub repository"
        " akshayanand28/Online-Shoppers-Intention-Prediction, commit"
        f" d744614924c6992ffa7ccf36868a2bc722987c5b; months of 100 sessions or more, {_THINNED}"
    ),
    descr=f"""\
Online shoppers' purchasing intention, by month

4,734 sessions in a shop, at most 600 of each of 10 months, the domains (numbered as in the copy,
not by the calendar). Target: 1 where the session ends with a purchase, 15.4 % of all and 1.6 % to
23.7 % by month. PageValues carries most of the signal. VisitorType has three values, one of them
text, and becomes three indicators; OperatingSystems, Browser, Region and TrafficType are codes
that are left as numbers. Nothing is missing.

Difference from the paper: not in it.
Source: the UCI table, by way of akshayanand28/Online-Shoppers-Intention-Prediction. Cite:
C. O. Sakar et al., Neural Computing and Applications 31:6893-6908, 2019.
{_UCI}
""",
)

BIKE = DataFile(
    name="bike",
    file="bike_seasons.csv.gz",
    sha256="970174bf115e9890565efe3250ae13e3ebc7d60afb442b9e4bda1949d1203c30",
    rows=4800,
    domains=8,
    features=8,
    target="log_count",
    description="Bike sharing: hours of 8 seasons, log of the bikes rented",
    origin=(
        "hour.csv in the GitHub repository zdvi/BikeSharing, commit"
        f" 703dd0fbc7f59c8dcd547250c402ed19ee64f391; {_THINNED}, with domain, time of day and"
        " weather, and log_count = log(1 + cnt)"
    ),
    descr=f"""\
Capital Bikeshare, by season

4,800 hours of 2011 and 2012, 600 of each of the 8 seasons (season and year), the domains. Features
say the hour, the kind of day and the weather. Target: log(1 + bikes rented). Nothing is missing.

Difference from the paper: not in it.
Source: the UCI table of hours, by way of zdvi/BikeSharing, without dates, month, the two partial
counts and the felt temperature. Cite: H. Fanaee-T, J. Gama, Event labeling combining ensemble
detectors and background knowledge, Progress in Artificial Intelligence 2:113-127, 2014.
{_UCI}
""",
)

COMMUNITIES = DataFile(
    name="communities",
    file="communities_states.csv.gz",
    sha256="62d0bc435e4417ea501bf58d5c033aa11564fc0f7b437a4d0efff59f1503d359",
    rows=1869,
    domains=30,
    features=98,
    target="log_violent_crimes",
    description="Communities and crime: census figures in 30 states, log of violent crimes",
    origin=(
        "data/cleaned/communities.csv in the GitHub repository nirbhik-datta/CrimesInCommunities,"
        " commit 4269878d764029c911d4c67188d6a95952fdedc2; states of 20 communities or more, with"
        " domain, the columns population to PctSameState85 that are 80 % present, and"
        " log_violent_crimes = log(1 + violent crimes per 100,000)"
    ),
    descr=f"""\
Communities and crime, by state

1,869 communities in 30 states of the United States (20 to 278 each), the domains; 98 figures of the
census about people, incomes, families and houses, in their own units. Target: log(1 + violent
crimes per 100,000 people); differences between states are 30 % of its variance. Nothing is missing.

Difference from the paper: not in it.
Source: the unnormalised UCI table, by way of nirbhik-datta/CrimesInCommunities. Cite: M. Redmond,
Communities and Crime Unnormalized, UCI Machine Learning Repository, 2009.
{_UCI}
""",
)

KC_HOUSE = DataFile(
    name="kc_house",
    file="kc_house_zipcodes.csv.gz",
    sha256="68bdd11c9ea43cf13987dd371201b47c155624bb7a6f99f94f2c3acf21e463a9",
    rows=5547,
    domains=70,
    features=15,
    target="log_price",
    description="King County houses: sales in 70 zip codes, log of the price",
    origin=(
        "kc_house_data.csv in the GitHub repository Sumeet1203/KC_House, commit"
        f" 2cf3a3522cb0c4d436067c4d8b19d21ebfa71659; {_THINNED}, with the zip code as domain,"
        " without latitude and longitude, and log_price = log(price)"
    ),
    descr="""\
House sales in King County, by zip code

5,547 sales, 50 to 80 in each of 70 zip codes, the domains. Features are 15 facts about the house;
where it stands (zip code, latitude, longitude) is not among them. Target: log of the price in
dollars; differences between zip codes are 61 % of its variance. Nothing is missing.

Difference from the paper: not in it.
Source: a public table of sales in 2014 and 2015, by way of Sumeet1203/KC_House.
Licence: none stated.
""",
)

DATA_FILES = (
    *(PARKINSONS, LANDMINE, GVHD, OILWELLS, FACIES, HIPC, CYTOF),
    *(ADULT, SHOPPERS, BIKE, COMMUNITIES, KC_HOUSE),
)

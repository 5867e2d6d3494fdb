#include "train/fact_frames.h"

namespace kvbound::train {
namespace {

using enum FactValue;

constexpr FactFrame kFrames[] = {
    {kDigits,
     {"The locker of {p} opens with {v}.", "{p} set the combination of the locker to {v}."},
     "Which combination opens the locker of {p}?"},
    {kDigits,
     {"The reference of the {t} shipment is {v}.",
      "Papers for the {t} shipment carry the number {v}."},
     "What is the number of the {t} shipment?"},
    {kDigits,
     {"Extension {v} reaches {p} at the {w}.", "At the {w}, {p} can be called on extension {v}."},
     "Which extension reaches {p} at the {w}?"},
    {kDigits,
     {"{p} keeps the {o} in box {v}.", "The {o} of {p} lies in box {v}."},
     "In which box is the {o} of {p}?"},
    {kDigits,
     {"Invoice {v} was sent to the {w} in {t}.", "The {w} in {t} has received invoice {v}."},
     "Which invoice went to the {w} in {t}?"},
    {kDigits,
     {"The {w} of {t} counted {v} visitors last year.",
      "Last year there were {v} visitors at the {w} of {t}."},
     "How many visitors did the {w} of {t} count last year?"},
    {kDigits,
     {"The serial number engraved on the {o} is {v}.",
      "On the back of the {o} one reads: No. {v}."},
     "Which number is engraved on the {o}?"},
    {kDigits,
     {"To enter the {w} after hours, type {v} at the side door.",
      "The side door of the {w} needs the digits {v} at night."},
     "Which digits open the side door of the {w}?"},
    {kDigits,
     {"The bus from {t} to the {w} is line {v}.", "Line {v} runs between {t} and the {w}."},
     "Which bus line runs from {t} to the {w}?"},
    {kDigits,
     {"{p} lives at number {v}, {t} Road.", "The house of {p} is {v} {t} Road."},
     "What is the house number of {p} in {t} Road?"},
    {kCode,
     {"The ticket of {p} bears the code {v}.", "Booking {v} is in the name of {p}."},
     "What is the booking code of {p}?"},
    {kCode,
     {"The {o} is filed under {v} in the {w}.", "In the {w}, look for the {o} on shelf {v}."},
     "Where in the {w} is the {o} filed?"},
    {kCode,
     {"The car seen near {t} had the plate {v}.", "A witness in {t} wrote down the plate {v}."},
     "Which number plate was seen near {t}?"},
    {kCode,
     {"The flight to {t} is {v}.", "Passengers for {t} take flight {v}."},
     "Which flight goes to {t}?"},
    {kCode,
     {"The wireless network of the {w} asks for the key {v}.",
      "Guests at the {w} join its network with {v}."},
     "What must guests of the {w} type to join the network?"},
    {kCode,
     {"Spare parts for the {o} are ordered as {v}.", "The {o} has the part number {v}."},
     "Under which part number is the {o} ordered?"},
    {kCode,
     {"Patient {p} was given the file number {v}.", "The file of {p} at the clinic is {v}."},
     "What is the file number of {p}?"},
    {kWord,
     {"The dog of {p} is called {v}.", "{p} named the puppy {v}."},
     "What is the dog of {p} called?"},
    {kWord,
     {"The watchword for the {t} gate tonight is \"{v}\".",
      "Tonight the guard at the {t} gate lets in whoever says \"{v}\"."},
     "What does one say tonight at the {t} gate?"},
    {kWord,
     {"{p} hid the letter under the {v}.", "Under the {v} lies the letter that {p} hid."},
     "Under what did {p} hide the letter?"},
    {kWord,
     {"The project of the {w} was renamed {v}.", "People at the {w} call their new project {v}."},
     "What is the project of the {w} called?"},
    {kWord,
     {"For the birthday, {p} asked for nothing but a {v}.", "{p} wants a {v} as a present."},
     "What present does {p} want?"},
    {kWord,
     {"The boat that left {t} this morning is the {v}.",
      "From the harbour of {t} a boat named {v} set sail."},
     "What is the name of the boat from {t}?"},
    {kWords,
     {"The inn where {p} stayed has a sign with a {v}.", "{p} took a room at the {v}."},
     "At which inn did {p} stay?"},
    {kWords,
     {"The prize at the {t} fair was a {v}.", "Whoever won at the {t} fair took home a {v}."},
     "What was the prize at the {t} fair?"},
    {kWords,
     {"{p} lost a {v} on the way to {t}.", "On the road to {t}, {p} dropped a {v}."},
     "What did {p} lose on the way to {t}?"},
    {kWords,
     {"The band from {t} plays under the name {v}.", "In {t} everyone knows the band {v}."},
     "What is the band from {t} called?"},
    {kDate, {"{p} was born on {v}.", "The birthday of {p} is {v}."}, "When was {p} born?"},
    {kDate,
     {"The {w} in {t} opens on {v}.", "Opening day for the {w} in {t} will be {v}."},
     "When does the {w} in {t} open?"},
    {kDate,
     {"The contract with {p} ends on {v}.", "{p} is bound by contract until {v}."},
     "Until when does the contract with {p} run?"},
    {kDate,
     {"The bridge at {t} was finished on {v}.", "On {v} the first cart crossed the bridge at {t}."},
     "When was the bridge at {t} finished?"},
    {kDate,
     {"{p} must return the {o} by {v}.", "The {o} lent to {p} is due on {v}."},
     "By when must {p} return the {o}?"},
    {kPlace,
     {"{p} moved to {v} in the spring.", "Since the spring {p} has lived in {v}."},
     "Where has {p} lived since the spring?"},
    {kPlace,
     {"The {o} was made in {v}.", "A small shop in {v} made the {o}."},
     "Where was the {o} made?"},
    {kPlace,
     {"The next meeting of the {w} takes place in {v}.",
      "Members of the {w} will next meet in {v}."},
     "Where does the {w} meet next?"},
    {kPlace,
     {"{p} and the sister went to school in {v}.", "{p} was a pupil in {v}."},
     "Where did {p} go to school?"},
    {kPlace,
     {"The parcel for {p} was sent to {v} by mistake.",
      "By mistake the parcel of {p} went to {v}."},
     "Where did the parcel for {p} go by mistake?"},
    {kColour,
     {"{p} painted the front door {v}.", "The front door of {p} is {v} now."},
     "Which colour is the front door of {p}?"},
    {kColour,
     {"The {o} comes in a {v} case.", "Look for a {v} case; the {o} is inside."},
     "Which colour is the case of the {o}?"},
    {kColour,
     {"The players from {t} wear {v}.", "{t} plays in {v} shirts."},
     "In which colour do the players from {t} play?"},
    {kTime,
     {"The last train to {t} leaves at {v}.", "At {v} the last train departs for {t}."},
     "When does the last train to {t} leave?"},
    {kTime,
     {"{p} has an appointment at {v}.", "The dentist expects {p} at {v}."},
     "At what time is the appointment of {p}?"},
    {kTime,
     {"The {w} closes at {v} on Saturdays.", "On Saturdays one must leave the {w} by {v}."},
     "When does the {w} close on Saturdays?"},
    {kTime,
     {"The alarm at the {w} went off at {v}.", "It was {v} when the alarm rang at the {w}."},
     "When did the alarm at the {w} go off?"},
    {kAmount,
     {"{p} paid {v} for the {o}.", "The {o} cost {p} exactly {v}."},
     "How much did {p} pay for the {o}?"},
    {kAmount,
     {"The {w} of {t} owes {p} {v}.", "{p} is still owed {v} by the {w} of {t}."},
     "How much does the {w} of {t} owe {p}?"},
    {kAmount,
     {"The cart for {t} was loaded with {v} of salt.", "{v} of salt went to {t} on one cart."},
     "How much salt went to {t}?"},
    {kAmount,
     {"The recipe of {p} takes {v} of flour.", "{p} uses {v} of flour for the loaf."},
     "How much flour does the recipe of {p} take?"},
    {kPerson, {"The {o} belongs to {v}.", "{v} is the owner of the {o}."}, "Who owns the {o}?"},
    {kPerson,
     {"The {w} in {t} is run by {v}.", "Since May, {v} has been in charge of the {w} in {t}."},
     "Who runs the {w} in {t}?"},
    {kPerson,
     {"{p} is engaged to {v}.", "{v} and {p} will marry in autumn."},
     "Whom will {p} marry?"},
    {kPerson,
     {"The portrait in the {w} shows {v}.",
      "It is {v} who looks down from the portrait in the {w}."},
     "Whom does the portrait in the {w} show?"},
};

constexpr const char* kFirstNames[] = {
    "Alice",   "Bernard", "Clara",   "Daniel", "Edith",    "Frank",  "Grace",   "Harold", "Irene",
    "Julian",  "Karen",   "Leonard", "Martha", "Nathan",   "Olivia", "Peter",   "Rachel", "Samuel",
    "Teresa",  "Victor",  "Wendy",   "Adam",   "Beatrice", "Carlos", "Dorothy", "Ernest", "Fiona",
    "Gregory", "Helen",   "Isaac",   "Joyce",  "Kenneth",  "Laura",  "Miguel",  "Nora",   "Oscar",
    "Priya",   "Quentin", "Rosa",    "Stefan", "Ursula",   "Walter", "Yusuf",   "Amara",  "Kenji"};

constexpr const char* kLastNames[] = {
    "Abbott",  "Barnes",   "Carver",  "Dalton",   "Ellis",     "Fletcher", "Garner",   "Hobbs",
    "Ingram",  "Jensen",   "Keller",  "Lindgren", "Moreno",    "Novak",    "Osborne",  "Parker",
    "Quigley", "Ramirez",  "Schmidt", "Thornton", "Underwood", "Vance",    "Whitaker", "Young",
    "Zimmer",  "Bishop",   "Cooper",  "Dawson",   "Fischer",   "Gupta",    "Holloway", "Kowalski",
    "Laurent", "Mitchell", "Okafor",  "Petrov",   "Rossi",     "Sanders",  "Tanaka",   "Weaver"};

constexpr const char* kTowns[] = {
    "Bristol",  "Oslo",     "Lisbon",  "Dover",    "Krakow",   "Geneva",  "Boston",   "Denver",
    "Cardiff",  "Hamburg",  "Toronto", "Malaga",   "Utrecht",  "Salem",   "Galway",   "Nairobi",
    "Kyoto",    "Lyon",     "Bergen",  "Tucson",   "Plymouth", "Verona",  "Aberdeen", "Halifax",
    "Portland", "Adelaide", "Ghent",   "Winnipeg", "Trieste",  "Norwich", "Savannah", "Lucerne",
    "Antwerp",  "Quebec",   "Seville", "Dresden",  "Durban",   "Perth",   "Austin",   "Cork"};

constexpr const char* kObjects[] = {
    "brass compass", "silver watch",    "old camera",   "sewing machine",   "red bicycle",
    "grand piano",   "leather satchel", "steam engine", "water pump",       "oak cabinet",
    "telescope",     "typewriter",      "stone vase",   "model ship",       "fur coat",
    "garden bench",  "copper kettle",   "wall clock",   "hunting rifle",    "violin",
    "emerald ring",  "snow sled",       "iron stove",   "map of the coast", "second ledger",
    "music box",     "film projector",  "tea set",      "canvas tent",      "microscope"};

constexpr const char* kWorkplaces[] = {
    "library", "bakery",     "museum",      "post office",  "observatory",  "printing house",
    "sawmill", "town hall",  "dairy",       "fire station", "theatre",      "shipyard",
    "brewery", "laboratory", "court house", "art school",   "pharmacy",     "night market",
    "chapel",  "archive",    "bookshop",    "power plant",  "concert hall", "ferry office"};

constexpr const char* kNouns[] = {
    "anchor",   "basket", "candle",  "falcon", "garnet", "hammer", "island", "juniper", "kettle",
    "lantern",  "marble", "needle",  "orchid", "pepper", "quilt",  "ribbon", "saddle",  "thistle",
    "umbrella", "violet", "walnut",  "barrel", "cobweb", "dagger", "ember",  "feather", "goblet",
    "harvest",  "ivory",  "jasmine", "ladder", "meadow", "nutmeg", "otter",  "pebble",  "raven",
    "sparrow",  "tulip",  "velvet",  "willow", "badger", "cactus", "domino", "elbow",   "fiddle"};

constexpr const char* kAdjectives[] = {
    "golden",  "crooked", "silent", "broken",   "copper", "hollow", "laughing", "wooden", "frozen",
    "painted", "tiny",    "rusty",  "northern", "velvet", "hidden", "sleepy",   "brave",  "narrow"};

constexpr const char* kColours[] = {"red",    "green", "blue",   "yellow",    "purple",
                                    "orange", "brown", "grey",   "white",     "black",
                                    "pink",   "beige", "maroon", "turquoise", "cream"};

constexpr const char* kShades[] = {"dark", "pale", "bright", "dull", "deep"};

constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

constexpr const char* kUnits[] = {"dollars", "pounds", "crowns", "kilograms", "ounces", "sacks"};

}  // namespace

std::span<const FactFrame> FactFrames() { return kFrames; }

const FactWords& Words() {
  static constexpr FactWords kWords = {kFirstNames, kLastNames, kTowns,      kObjects,
                                       kWorkplaces, kNouns,     kAdjectives, kColours,
                                       kShades,     kMonths,    kUnits};
  return kWords;
}

}  // namespace kvbound::train

"""Twenty made-up captions, each with five references, and what the COCO caption evaluation gives them."""

CAPTIONS: list[tuple[str, list[str]]] = [
    (
        "A brown dog runs across the wet sand.",
        [
            "A brown dog is running on the beach.",
            "A dog runs across wet sand near the sea.",
            "The dog sprints along the shore.",
            "A wet dog running through shallow water.",
            "A dog, all alone, runs on a sandy beach.",
        ],
    ),
    (
        "Two men are playing chess in the park.",
        [
            "Two men play chess at a table in a park.",
            "Two old men are playing chess in the park.",
            "A pair of friends playing a board game outdoors.",
            "Men sit on a bench and play chess.",
            "Two people concentrate on a chess board under the trees.",
        ],
    ),
    (
        "a red bus is driving down the street",
        [
            "A red double-decker bus drives down a busy street.",
            "The bus is driving past some shops.",
            "A red bus is driving down the street",
            "A city bus on its way down the road.",
            "A big red bus in traffic.",
        ],
    ),
    (
        "A woman holding a umbrella a umbrella in the rain",
        [
            "A woman holds an umbrella in the rain.",
            "A lady with a black umbrella crosses the street.",
            "A woman walking in the rain with her umbrella.",
            "Someone's umbrella keeps the rain off.",
            "A woman in a long coat holding an umbrella",
        ],
    ),
    (
        "A cat.",
        [
            "A grey cat sleeps on a warm window sill.",
            "The cat is asleep by the window.",
            "A cat lying in the sun on a window sill.",
            "A sleeping cat next to a potted plant.",
            "A cat takes a nap.",
        ],
    ),
    (
        "",
        [
            "An empty plate on a wooden table.",
            "A white plate and a fork.",
            "A plate with crumbs, a fork and a knife.",
            "Somebody has eaten everything on this plate.",
            "A table with an empty plate on it.",
        ],
    ),
    (
        "The children don't want to leave the playground!",
        [
            "The children don't want to go home.",
            "Children play on a slide and two swings.",
            "Kids at a playground, having fun.",
            "Several children don't stop climbing at the playground.",
            "A group of children is playing outside.",
        ],
    ),
    (
        "A clock tower shows ten past 2:08 at night",
        [
            "A clock on a tower says 2:08.",
            "The tall clock tower is lit at night.",
            "A lighted clock tower against a dark sky.",
            "The clock shows eight minutes past two.",
            "A tower with a clock, seen at night.",
        ],
    ),
    (
        "A man riding a wave on top of a surfboard.",
        [
            "A man riding a wave on a surfboard.",
            "A surfer in a wetsuit catches a big wave.",
            "The surfer rides the wave towards the beach.",
            "A man on top of a surfboard in the ocean.",
            "Someone is surfing a wave that's about to break.",
        ],
    ),
    (
        "A slice of pizza on a white plate next to a fork",
        [
            "A slice of cheese pizza sits on a plate.",
            "There is a slice of pizza on a white plate.",
            "A plate of food with a fork and a napkin.",
            "Half a pizza and a glass of water.",
            "Somebody's lunch: pizza, with a fork beside it.",
        ],
    ),
    (
        "A train at a station with people waiting on the platform",
        [
            "A yellow train pulls into the station.",
            "People are waiting on the platform for a train.",
            "A commuter train at a train station.",
            "Passengers wait at the station as the train arrives.",
            "A long train is stopped next to a platform with people on it.",
        ],
    ),
    (
        "A bird sits on a branch.",
        [
            "A small blue bird sits on a branch.",
            "A bird perched on the branch of a tree.",
            "The bird is sitting on a thin twig.",
            "A bird with a yellow beak looks to the left.",
            "A colourful bird on a bare branch",
        ],
    ),
    (
        "Three giraffes standing in a field with trees in the background.",
        [
            "Two giraffes stand in a grassy field.",
            "A couple of giraffes near some trees.",
            "Giraffes standing in a field with trees in the background.",
            "Two tall giraffes eating leaves from a tree.",
            "A pair of giraffes in a zoo.",
        ],
    ),
    (
        "A kitchen with a stove, a sink and wooden cabinets",
        [
            "A small kitchen with wooden cabinets and a white stove.",
            "The kitchen has a sink under the window.",
            "A clean kitchen with a stove and a refrigerator.",
            "A kitchen, with pots hanging on the wall.",
            "An old-fashioned kitchen with wooden cabinets.",
        ],
    ),
    (
        "A snowboarder jumps high over the snow",
        [
            "A snowboarder in mid-air above a ramp.",
            "A person on a snowboard jumps over the snow.",
            "The snowboarder does a trick high in the air.",
            "A man flies through the air on his snowboard.",
            "Somebody jumping with a snowboard, mountains behind.",
        ],
    ),
    (
        "the the the the the the the",
        [
            "The horse stands in the stable.",
            "A horse looks out of its stall.",
            "A brown horse with a white stripe on its nose.",
            "The head of a horse in a barn.",
            "A horse behind a wooden gate",
        ],
    ),
    (
        "A laptop computer sitting on top of a desk",
        [
            "A laptop computer sitting on top of a wooden desk.",
            "A desk with a laptop, a mouse and a cup of coffee.",
            "An open laptop on a cluttered desk.",
            "A computer and some papers on a table.",
            "Someone's work place with a laptop and a lamp.",
        ],
    ),
    (
        "A boy kicks a ball while another boy is watching him",
        [
            "Two boys are playing soccer on the grass.",
            "A boy kicks the ball towards the goal.",
            "A young boy kicks a ball while another watches.",
            "Kids in a soccer match.",
            "Boys playing football in green and white shirts.",
        ],
    ),
    (
        "Elephants drinking from a river at sunset",
        [
            "A herd of elephants drinks water from a river.",
            "Elephants at a water hole in the evening.",
            "Several elephants, big and small, by the river.",
            "An elephant sprays itself with water.",
            "A family of elephants drinking from a river.",
        ],
    ),
    (
        "An airplane is parked at the gate of an airport",
        [
            "A large airplane parked at an airport gate.",
            "A plane waits at the gate on a cloudy day.",
            "An airplane on the runway of an airport.",
            "A passenger jet is parked and being loaded.",
            "The airplane is white with a blue tail.",
        ],
    ),
]
ANSWERS = [answer for answer, _ in CAPTIONS]
REFERENCES = [references for _, references in CAPTIONS]

"""Words for fingerprints: one for each value of a byte, short, and none easily taken for another.

Their order is part of what people compare: a word is never moved or replaced.
"""

_TEXT = """
acorn alarm album amber anchor angle ankle apple apron arrow aspen atlas autumn badge bagel bamboo banjo
barley basin basket beacon beaver bench berry birch bishop blanket bonnet border bottle bramble branch
bread breeze brick bridge bronze brook bucket button cabin cactus camel candle canoe canvas carbon
carpet castle cedar cellar chalk cherry chess chimney cider cinder circus citrus clay cliff clover
cobalt cocoa comet compass copper coral cotton cousin cradle crane crayon cricket crystal cymbal daisy
dancer decade denim desert diary dinner dolphin donkey dragon drum eagle easel echo elbow elder ember
emerald engine estate fabric falcon feather fiddle field finger flame flint flute forest fossil fountain
fox galaxy garden garlic gentle giant ginger glacier globe goblet gravel guitar hammer harbor harvest
hazel helmet heron hollow honey horizon hunter icicle indigo island ivory jacket jasmine jelly jigsaw
jungle juniper kayak kettle kitchen kitten ladder lagoon lantern laurel lemon lentil library lilac linen
lizard lobster locket lumber magnet mango maple marble meadow melon mirror mitten monkey mosaic mountain
muffin mural napkin nectar needle nickel north nugget oasis ocean olive onion orbit orchid otter oyster
paddle palace panther paper parade parcel parrot pebble pencil pepper piano pigeon pillow planet plum
pocket pollen pony poplar potato prairie pumpkin puzzle quartz quilt rabbit radish raven ribbon river
robin rocket saddle saffron salmon sandal satin scarf school shadow shelter signal silver sketch sleigh
spider spruce squash stable station summer swallow table teapot temple thimble thunder ticket tiger
timber tomato tulip tunnel turtle valley velvet violin walnut willow window winter wizard
"""
WORDS = tuple(_TEXT.split())
